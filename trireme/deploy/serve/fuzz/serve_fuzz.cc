// libFuzzer target for what clients ask: a body is read or refused by a RequestError.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/serve_fuzz -max_total_time=30 trireme/deploy/serve/fuzz/corpus
#include <cstdint>
#include <cstdlib>

#include "trireme/deploy/serve/infer_request.h"
#include "trireme/deploy/serve/predict_request.h"
#include "trireme/deploy/serve/routes.h"

namespace {

using namespace trireme::serve;

/// KServe v2: as JSON alone, and with binary data behind it.
void infer(std::string_view body, std::optional<size_t> header_bytes) {
  static const trireme::bundle::Input kInput{.name = "x", .channels = 1, .height = 1, .width = 2};
  static const trireme::bundle::Output kOutput{.name = "out", .class_num = 3};
  try {
    const InferRequest request = parse_infer_request(body, header_bytes);
    const size_t count = check_infer_request(request, body, {.input = kInput, .output = kOutput, .images = 4});
    const bool tensors = request.inputs[0].datatype == "FP32";
    if (count != (tensors ? read_tensors(request, body, 2).size() : read_images(request, body).size())) std::abort();
  } catch (const RequestError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  match_route("GET", body);
  infer(body, std::nullopt);
  if (size > 0) infer(body.substr(1), data[0]);
  try {
    if (parse_predict_json(body, {.images = 4}).images.size() > 4) std::abort();
  } catch (const RequestError&) {
  }
  return 0;
}
