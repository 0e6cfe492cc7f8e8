// libFuzzer target for configurations: any text is read or refused by a UsageError, and what is read is written as a
// text that reads the same. The first line is taken for an override.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/config_fuzz -max_total_time=30 trireme/config/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trireme/config/number.h"
#include "trireme/config/parse.h"
#include "trireme/config/train_config.h"
#include "trireme/config/write.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace {

using namespace trireme;

/// Of what was written, nothing may be refused; many aliases can make it longer than a file may be.
config::ValuePtr read_again(const std::string& written) {
  try {
    return config::parse_yaml(written, "written", 1, {.bytes = 64u << 20, .values = 10u << 20});
  } catch (const UsageError&) {
    std::abort();
  }
}

void fuzz_round_trip(const std::string& text) {
  const std::string written = config::write_yaml(*config::parse_yaml(text, "fuzz"));
  if (config::write_yaml(*read_again(written)) != written) std::abort();
}

void fuzz_train_config(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return;
  const auto read = config::parse(text.substr(end + 1), "fuzz", {text.substr(0, end)});
  if (config::write_yaml(*read_again(read.to_text())) != read.to_text()) std::abort();
}

void fuzz_number(const std::string& text) {
  config::evaluate(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::off);
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto target : {fuzz_round_trip, fuzz_train_config, fuzz_number}) {
    try {
      target(text);
    } catch (const UsageError&) {
    }
  }
  return 0;
}
