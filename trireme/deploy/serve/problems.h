// What the service refuses, beside what HTTP itself does (http/problem.h); docs/serve.md lists both.
//
//   throw RequestError(problem("no_images"), "the body names no images");
#pragma once

#include <string_view>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/http/problem.h"

namespace trireme::serve {

inline constexpr http::Problem kProblems[] = {
    {400, "bad_image", "a picture is not a JPEG or PNG, is cut off, or is damaged",
     "send the bytes of the file as they are"},
    {400, "bad_json", "the body is not JSON", "look at the byte that the message names"},
    {400, "bad_request", "the JSON holds a key or a value that does not belong there", "send the form above"},
    {400, "bad_tensor", "name, type, shape or data of a tensor do not fit the model",
     "`GET /v2/models/NAME` shows them"},
    {400, "which_model", "there are several models, and the path names none", "use `/v1/models/NAME/predict`"},
    {400, "bad_base64", "a text of `images` is not Base64",
     "send the standard alphabet with its padding; line breaks are allowed"},
    {400, "no_images", "the JSON names no pictures", "send at least one"},
    {400, "too_many_images", "more than `--images-per-request`", "send several requests"},
    {400, "bad_topk", "`topk` is not a whole number from 1, or is given twice", "send one, or none"},
    {400, "empty_body", "a prediction without a body", "send a picture, or JSON"},
    {404, "not_found", "no such path", "use one that the message lists"},
    {404, "no_such_model", "no model has this name or version", "use one that the message lists"},
    {405, "method_not_allowed", "the path does not take this method", "use one that `Allow` names"},
    {413, "image_too_large", "more pixels than `--max-pixels`, or more than `--decode-memory` alone",
     "send a smaller picture"},
    {415, "unsupported_type", "another `Content-Type`, or a compressed body", "send a type that the message lists"},
    {500, "bad_scores", "the model answers a picture with scores that are not finite",
     "try `--precision fp32`; else the model is broken"},
    {503, "draining", "the server is shutting down", "ask another server, or retry"},
    {504, "timeout", "no answer within `--request-timeout`", "retry with fewer pictures"},
};

consteval const http::Problem& problem(std::string_view code) {
  return http::find_problem(kProblems, code);
}

/// A request, or one of its pictures, that cannot be answered; the message says what is wrong with it.
class RequestError : public UsageError {
 public:
  template <typename... Args>
  explicit RequestError(const http::Problem& problem, fmt::format_string<Args...> format, Args&&... args)
      : UsageError(format, std::forward<Args>(args)...), problem_(&problem) {}
  const http::Problem& problem() const { return *problem_; }

 private:
  const http::Problem* problem_;
};

}  // namespace trireme::serve
