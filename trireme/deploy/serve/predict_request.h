// The body of a prediction, whichever way it came: bytes of one picture, or JSON with several.
//
//   const PredictRequest request = parse_predict_json(body, {.images = 64});
//   for (const EncodedImage& image : request.images) …
//
// A picture in JSON is Base64, also as a browser writes it: "data:image/png;base64,…". A text that is not Base64 is an
// error of that picture, not of the request.
// The JSON is read value by value and nothing but {"images": [text, …], "topk": number} is let in, so that a hostile
// body takes no more memory than its own size. Thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/deploy/serve/problems.h"

namespace trireme::serve {

struct EncodedImage {
  std::string bytes;       ///< of a picture file
  std::string error = {};  ///< why there are none; "": there are
};

struct PredictRequest {
  std::vector<EncodedImage> images;
  std::optional<int> topk{};
};

struct PredictLimits {
  size_t images = 64;
};

/// A picture out of a text of JSON, which is used up.
EncodedImage decode_image_text(std::string text);
/// Throws RequestError.
PredictRequest parse_predict_json(std::string_view body, const PredictLimits& limits);
/// A whole number from 1; of more than there are classes, all are meant. Throws RequestError that names it.
int parse_topk(std::string_view text);

}  // namespace trireme::serve
