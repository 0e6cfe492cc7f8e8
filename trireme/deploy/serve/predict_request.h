// The body of a prediction, whichever way it came: bytes of one picture, or JSON with several.
//
//   const PredictRequest request = parse_predict_json(body, {.images = 64});
//   for (const std::string& picture : request.images) …
//
// A picture in JSON is Base64, also as a browser writes it: "data:image/png;base64,…".
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

struct PredictRequest {
  std::vector<std::string> images;  ///< bytes of picture files
  std::optional<int> topk{};
};

struct PredictLimits {
  size_t images = 64;
};

/// Throws RequestError.
PredictRequest parse_predict_json(std::string_view body, const PredictLimits& limits);
/// A whole number from 1; of more than there are classes, all are meant. Throws RequestError that names it.
int parse_topk(std::string_view text);

}  // namespace trireme::serve
