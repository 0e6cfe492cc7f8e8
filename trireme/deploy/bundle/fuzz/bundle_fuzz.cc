// libFuzzer target for inference.yml: any text is read or refused by a UsageError, and what is read is written as a text
// that reads the same. The transforms of the images are made of it, or refused in the same way.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/bundle_fuzz -max_total_time=30 trireme/deploy/bundle/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/deploy/bundle/description.h"

namespace {

using namespace trireme;

void fuzz_round_trip(const std::string& text) {
  const std::string written = bundle::to_yaml(bundle::parse(text, "fuzz"));
  try {
    if (bundle::to_yaml(bundle::parse(written, "written")) != written) std::abort();
    bundle::parse(bundle::seal(written), "sealed");
  } catch (const UsageError&) {
    std::abort();
  }
}

void fuzz_transforms(const std::string& text) {
  bundle::make_transforms(bundle::parse(text, "fuzz"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::off);
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto target : {fuzz_round_trip, fuzz_transforms}) {
    try {
      target(text);
    } catch (const UsageError&) {
    }
  }
  return 0;
}
