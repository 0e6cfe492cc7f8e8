// libFuzzer target for what clients ask: a body of JSON is read or refused by a RequestError.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/serve_fuzz -max_total_time=30 trireme/deploy/serve/fuzz/corpus
#include <cstdint>
#include <cstdlib>

#include "trireme/deploy/serve/predict_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme::serve;
  try {
    if (parse_predict_json({reinterpret_cast<const char*>(data), size}, {.images = 4}).images.size() > 4) std::abort();
  } catch (const RequestError&) {
  }
  return 0;
}
