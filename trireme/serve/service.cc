#include "trireme/serve/service.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/image/decode.h"

namespace trireme::serve {
namespace {

using Json = nlohmann::json;

// A thread that decodes keeps the memory of its largest picture for the next one. Beyond this the picture gets a thread
// of its own, which ends with it: then the budget is all there is, and starting a thread is little beside the decoding.
constexpr size_t kKeptBytes = size_t{4} << 20;
constexpr const char* kPaths = "there is: POST /v1/predict, GET /healthz, GET /metrics";

http::Response busy(std::string_view code, std::string_view message) {
  http::Response response = http::error_response(503, code, message);
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

http::Response wrong_method(const http::Request& request, const char* allowed) {
  http::Response response = http::error_response(
      405, "method_not_allowed", fmt::format("{} is answered to {}, not to {}", request.path, allowed, request.method));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

http::Response unanswered(Unanswered reason, const ServiceOptions& options) {
  switch (reason) {
    case Unanswered::queue_full:
      return busy("overloaded", fmt::format("{} pictures wait already; try again", options.max_queue));
    case Unanswered::timed_out:
      return http::error_response(504, "timeout",
                                  fmt::format("no answer within {:.3g} s (--request-timeout)",
                                              std::chrono::duration<double>(options.request_timeout).count()));
    case Unanswered::stopped:
      break;
  }
  return busy("draining", "the server is shutting down");
}

bool is_get(const http::Request& request) {
  return request.method == "GET" || request.method == "HEAD";
}

/// "image/jpeg" out of "Image/JPEG; x=y".
std::string media_type(const http::Request& request) {
  const std::string_view value = request.header("content-type");
  return to_lower(trim(value.substr(0, value.find(';'))));
}

bool is_picture_type(const std::string& type) {
  return type == "image/jpeg" || type == "image/png" || type == "application/octet-stream";
}

class UnsupportedType : public UsageError {
 public:
  using UsageError::UsageError;
};

class TooLarge : public UsageError {
 public:
  using UsageError::UsageError;
};

/// What decoding takes at the most, a pixel: its three colours; and of a JPEG, whose colours and details may come one
/// after the other, the two bytes of each of up to four components that libjpeg keeps until the last has come.
size_t bytes_per_pixel(std::string_view image) {
  return image.starts_with("\x89PNG") ? 3 : 3 + 2 * 4;
}

/// Decoding, and then resizing until the shorter side is about as long as the network's input: of a picture that is a
/// thin line this makes far more than it was. As much as the input has bytes, stretched to the picture's shape, is
/// enough for every usual margin. Looks at the header only. Throws TooLarge, and ImageError for what is no picture.
size_t bytes_to_decode(std::string_view image, size_t input_bytes, const ServiceOptions& options) {
  const image::Size size = image::read_size(image, {.max_pixels = INT64_MAX});
  const auto [narrow, wide] = std::minmax(size.width, size.height);
  const int64_t pixels = int64_t{narrow} * wide;
  if (pixels > options.max_pixels)
    throw TooLarge("{}x{} are {} pixels; the limit is {} (--max-pixels)", size.width, size.height, pixels,
                   options.max_pixels);
  const size_t stretched = input_bytes * static_cast<size_t>(wide) / static_cast<size_t>(narrow);
  const size_t bytes = static_cast<size_t>(pixels) * bytes_per_pixel(image) + stretched;
  if (bytes > options.decode_bytes)
    throw TooLarge("{}x{} pixels may take {} bytes to decode and resize; the limit is {} (--decode-memory)", size.width,
                   size.height, bytes, options.decode_bytes);
  return bytes;
}

}  // namespace

Service::Service(const infer::Predictor& predictor, const ServiceOptions& options)
    : predictor_(predictor),
      options_(options),
      decoding_(options.decode_bytes),
      batcher_({.max_batch = options.max_batch, .max_wait = options.batch_wait, .max_queue = options.max_queue},
               [this](const std::vector<Tensor>& batch) { return run_batch(batch); }) {
  check_preprocessing();
  predictor_.scores(Tensor(predictor_.input_elements()));
}

/// That no bytes are no picture is all a good model has to say about them.
void Service::check_preprocessing() const {
  Tensor tensor(predictor_.input_elements());
  try {
    predictor_.preprocess("", tensor);
  } catch (const image::ImageError&) {
  }
}

bool Service::is_quick(const http::Request& request) {
  return request.path == "/healthz" || request.path == "/metrics";
}

http::Response Service::handle(http::Request& request) {
  if (request.path == "/v1/predict" || request.path == "/predict")
    return request.method == "POST" ? predict(request) : wrong_method(request, "POST");
  if (request.path == "/healthz") return is_get(request) ? health(request) : wrong_method(request, "GET, HEAD");
  if (request.path == "/metrics") return is_get(request) ? metrics_page(request) : wrong_method(request, "GET, HEAD");
  return http::error_response(404, "not_found", fmt::format("there is no {}; {}", request.path.substr(0, 100), kPaths));
}

http::Response Service::health(const http::Request& request) const {
  const bool ready = !request.late && !request.server.draining;
  const Json body{{"status", ready ? "ok" : "draining"}, {"model", predictor_.model_name()}};
  return {.status = ready ? 200 : 503, .body = body.dump() + "\n"};
}

http::Response Service::metrics_page(const http::Request& request) const {
  return {.type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_.text({.queued = batcher_.waiting(),
                                 .in_flight = request.server.in_flight,
                                 .connections = request.server.connections,
                                 .draining = request.server.draining})};
}

// --- a prediction

http::Response Service::predict(http::Request& request) {
  if (request.late) return unanswered(Unanswered::stopped, options_);
  try {
    const bool single = is_picture_type(media_type(request));
    return answer(read_request(request), Deadline::at(request.arrived + options_.request_timeout), single);
  } catch (const UnsupportedType& error) {
    return http::error_response(415, "unsupported_type", error.what());
  } catch (const RequestError& error) {
    return http::error_response(400, error.code(), error.what());
  } catch (const UnansweredError& error) {
    return unanswered(error.reason(), options_);
  }
}

/// The request's body is used up: its memory goes into the pictures, or is free while the engine works.
PredictRequest Service::read_request(http::Request& request) const {
  const std::string type = media_type(request);
  if (!request.header("content-encoding").empty())
    throw UnsupportedType("Content-Encoding {} is not understood; send the body as it is",
                          printable(request.header("content-encoding").substr(0, 40)));
  if (!is_picture_type(type) && type != "application/json")
    throw UnsupportedType(
        "Content-Type is {}; expected image/jpeg, image/png or application/octet-stream for a picture, or "
        "application/json",
        type.empty() ? "missing" : "\"" + printable(type.substr(0, 80)) + "\"");
  std::string body = std::move(request.body);
  if (body.empty()) throw RequestError("empty_body", "the body is empty");
  PredictRequest result;
  if (is_picture_type(type))
    result.images.push_back(std::move(body));
  else
    result = parse_predict_json(body, {.images = options_.images_per_request});
  const std::string_view topk = request.parameter("topk");
  if (!topk.empty()) result.topk = parse_topk(topk);
  return result;
}

http::Response Service::answer(const PredictRequest& request, Deadline deadline, bool single) {
  std::vector<Picture> pictures = decode(request.images, deadline);
  std::vector<Tensor> good;
  for (Picture& picture : pictures)
    if (picture.error.empty()) good.push_back(std::move(picture.tensor));
  if (good.empty()) {
    const Picture& first = pictures[0];
    return http::error_response(first.too_large ? 413 : 400, first.too_large ? "image_too_large" : "bad_image",
                                (single ? "" : "images[0]: ") + first.error);
  }
  const std::vector<Tensor> scores = batcher_.run(std::move(good), deadline);
  return {.body = prediction_text(pictures, scores, request.topk.value_or(0))};
}

std::vector<Service::Picture> Service::decode(const std::vector<std::string>& images, Deadline deadline) {
  std::vector<Picture> pictures;
  pictures.reserve(images.size());
  for (const std::string& image : images) {
    if (deadline.passed()) throw UnansweredError(Unanswered::timed_out);
    pictures.push_back(decode_one(image, deadline));
  }
  return pictures;
}

Service::Picture Service::decode_one(const std::string& image, Deadline deadline) {
  try {
    const size_t bytes = bytes_to_decode(image, predictor_.input_elements() * sizeof(float), options_);
    const auto share = decoding_.take(bytes, deadline);
    if (!share) throw UnansweredError(Unanswered::timed_out);
    Tensor tensor(predictor_.input_elements());
    const auto preprocess = [&] { predictor_.preprocess(image, tensor); };
    if (bytes > kKeptBytes)
      std::async(std::launch::async, preprocess).get();
    else
      preprocess();
    return {.tensor = std::move(tensor), .error = {}};
  } catch (const UsageError& error) {
    metrics_.count_refused_picture();
    return {.tensor = {}, .error = error.what(), .too_large = dynamic_cast<const TooLarge*>(&error) != nullptr};
  }
}

std::vector<Service::Tensor> Service::run_batch(const std::vector<Tensor>& batch) {
  const auto begin = Clock::now();
  infer::Buffer images(batch.size() * predictor_.input_elements());
  float* to = images.data();
  for (const Tensor& tensor : batch) to = std::copy(tensor.begin(), tensor.end(), to);
  const std::vector<float> scores = predictor_.scores(images.view());
  const auto classes = static_cast<std::ptrdiff_t>(predictor_.class_num());
  std::vector<Tensor> result;
  for (auto from = scores.begin(); from != scores.end(); from += classes) result.emplace_back(from, from + classes);
  metrics_.count_batch(batch.size(), std::chrono::duration<double>(Clock::now() - begin).count());
  return result;
}

std::string Service::prediction_text(const std::vector<Picture>& pictures, const std::vector<Tensor>& scores,
                                     int topk) const {
  Json predictions = Json::array();
  auto next = scores.begin();
  for (const Picture& picture : pictures) {
    if (!picture.error.empty()) {
      predictions.push_back({{"error", printable(picture.error)}});
      continue;
    }
    const infer::Prediction prediction = predictor_.rank(*next++, topk);
    predictions.push_back(
        {{"class_ids", prediction.class_ids}, {"scores", prediction.scores}, {"label_names", prediction.label_names}});
  }
  return Json{{"model", predictor_.model_name()}, {"predictions", std::move(predictions)}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace trireme::serve
