// libFuzzer target for test cases: any text is read or refused by a UsageError, and what is read can be planned for in
// every mode, or is refused in the same way. The first line is taken for a --set.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/tipc_fuzz -max_total_time=30 trireme/tipc/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/tipc/benchmark.h"
#include "trireme/tipc/compare.h"
#include "trireme/tipc/plan.h"

namespace {

using namespace trireme;

/// What is shown reads as the same words.
void check_shown(const tipc::Step& step) {
  if (split_words(show_words(step.command)) != step.command) std::abort();
}

void fuzz_mode(const tipc::Case& test, const std::string& mode) {
  try {
    for (const tipc::Step& step : tipc::make_plan(test, tipc::parse_mode(mode, "fuzz"))) check_shown(step);
  } catch (const UsageError&) {
  }
}

void fuzz_case(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return;
  tipc::ConfigText config = tipc::parse_config(text.substr(end + 1), "fuzz");
  if (end > 0) tipc::set_value(config, text.substr(0, end));
  const tipc::Case test = tipc::make_case(config);
  for (const std::string& mode : tipc::mode_names()) fuzz_mode(test, mode);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::off);
  const std::string text(reinterpret_cast<const char*>(data), size);
  tipc::parse_answers(text, "fuzz");
  std::istringstream log(text);
  tipc::parse_throughput(log);
  try {
    fuzz_case(text);
  } catch (const UsageError&) {
  }
  return 0;
}
