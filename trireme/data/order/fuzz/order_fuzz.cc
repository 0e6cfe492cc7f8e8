// libFuzzer target for what comes from outside: a sampler state that is accepted is written as it was read.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/order_fuzz -max_total_time=30 trireme/data/order/fuzz/corpus
#include <cstdint>
#include <cstdlib>

#include "trireme/core/error.h"
#include "trireme/data/order/sampler_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto state = trireme::data::parse_sampler_state({reinterpret_cast<const char*>(data), size});
    if (trireme::data::parse_sampler_state(to_text(state)) != state) std::abort();
  } catch (const trireme::UsageError&) {
  }
  return 0;
}
