// Requests and answers of the KServe v2 inference protocol (open inference protocol), with the extensions for binary
// tensors and for classification.
//
//   const InferRequest request = parse_infer_request(body, header_bytes);   // what is asked; the data stay in the body
//   std::vector<EncodedImage> images = read_images(request, body, limit);   // BYTES: pictures, in JSON as Base64
//   std::vector<Tensor> tensors = read_tensors(request, body, elements);    // FP32
//
// The JSON is read value by value and twice: first everything but the data, whose memory can then be taken. So a
// hostile body takes no more than its own size. All of these throw RequestError. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/deploy/serve/model.h"
#include "trireme/deploy/serve/predict_request.h"

namespace trireme::serve {

struct InferInput {
  std::string name = {};
  std::string datatype = {};
  std::vector<int64_t> shape = {};
  std::optional<size_t> binary_bytes = {};  ///< behind the JSON; nothing: the data are in it
  size_t values = 0;                        ///< of the data in the JSON
};

struct InferOutput {
  std::string name = {};
  std::optional<bool> binary = {};
  int classes = 0;  ///< 0: all scores; else the best ones as texts
};

struct InferRequest {
  std::string id = {};
  bool binary_output = false;  ///< of an output that does not say
  std::vector<InferInput> inputs = {};
  std::vector<InferOutput> outputs = {};  ///< at most one; empty: all scores
  size_t json_bytes = 0;                  ///< of the body; the rest is binary
};

/// What a model with one input and one output can be asked.
struct InferSignature {
  const bundle::Input& input;
  const bundle::Output& output;
  size_t images = 64;  ///< most in a request
};

/// `header_bytes`: the header Inference-Header-Content-Length, or nothing: the body is JSON alone.
InferRequest parse_infer_request(std::string_view body, std::optional<size_t> header_bytes);
/// Checks names, types and shapes against the model, and that there are as many data. Returns the number of pictures.
size_t check_infer_request(const InferRequest& request, std::string_view body, const InferSignature& signature);
/// Requires a checked request for BYTES.
std::vector<EncodedImage> read_images(const InferRequest& request, std::string_view body);
/// Requires a checked request for FP32. Tensors of `elements` floats each, all finite.
std::vector<Tensor> read_tensors(const InferRequest& request, std::string_view body, size_t elements);

/// Of a model that has answered every picture; their predictions have as many classes as the output asks for.
struct InferAnswer {
  std::string_view model;
  const InferRequest& request;
  const bundle::Output& output;
  const std::vector<Picture>& pictures;
};
http::Response infer_response(const InferAnswer& answer);

}  // namespace trireme::serve
