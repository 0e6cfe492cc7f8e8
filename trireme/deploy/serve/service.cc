#include "trireme/deploy/serve/service.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>

#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/data/image/decode.h"

namespace trireme::serve {
namespace {

using Json = nlohmann::json;

// A thread that decodes keeps the memory of its largest picture for the next one. Beyond this the picture gets a thread
// of its own, which ends with it: then the budget is all there is, and starting a thread is little beside the decoding.
constexpr size_t kKeptBytes = size_t{4} << 20;
constexpr const char* kPaths = "POST /v1/predict, GET /healthz or GET /metrics";

/// Names out of a model's files need not be UTF-8; what is not is replaced.
std::string text_of(const Json& body) {
  return body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

http::Response wrong_method(const http::Request& request, const char* allowed) {
  http::Response response = http::error_response(
      problem("method_not_allowed"), fmt::format("{} takes {}, not {}", request.path, allowed, request.method));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

http::Response unanswered(Unanswered reason, const ServiceOptions& options) {
  switch (reason) {
    case Unanswered::queue_full:
      return http::error_response(http::problem("overloaded"),
                                  fmt::format("{} pictures wait already; retry", options.max_queue));
    case Unanswered::timed_out:
      return http::error_response(problem("timeout"),
                                  fmt::format("no answer within {:.3g} s (--request-timeout)",
                                              std::chrono::duration<double>(options.request_timeout).count()));
    case Unanswered::stopped:
      break;
  }
  return http::error_response(problem("draining"), "the server is shutting down");
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

/// What decoding takes at the most, a pixel: its three colours; and of a JPEG, whose colours and details may come one
/// after the other, the two bytes of each of up to four components that libjpeg keeps until the last has come.
constexpr size_t kPngBytesPerPixel = 3, kJpegBytesPerPixel = 3 + 2 * 4;

size_t bytes_per_pixel(std::string_view image) {
  return image.starts_with("\x89PNG") ? kPngBytesPerPixel : kJpegBytesPerPixel;
}

/// Of a picture: decoding, and then resizing until the shorter side is about as long as the network's input: of a
/// picture that is a thin line this makes far more than it was. As much as the input has bytes, stretched to the
/// picture's shape, is enough for every usual margin. Looks at the header only. Throws RequestError, and ImageError for
/// bytes that are not a picture.
size_t bytes_to_decode(std::string_view image, size_t tensor_bytes, const ServiceOptions& options) {
  const image::Size size = image::read_size(image, {.max_pixels = INT64_MAX});
  const auto [narrow, wide] = std::minmax(size.width, size.height);
  const int64_t pixels = int64_t{narrow} * wide;
  if (pixels > options.max_pixels)
    throw RequestError(problem("image_too_large"), "{}x{} are {} pixels; the limit is {} (--max-pixels)", size.width,
                       size.height, pixels, options.max_pixels);
  const size_t stretched = tensor_bytes * static_cast<size_t>(wide) / static_cast<size_t>(narrow);
  const size_t bytes = static_cast<size_t>(pixels) * bytes_per_pixel(image) + stretched;
  if (bytes + tensor_bytes > options.decode_bytes)
    throw RequestError(problem("image_too_large"),
                       "{}x{} pixels may take {} bytes to decode and resize; the limit is {} (--decode-memory)",
                       size.width, size.height, bytes + tensor_bytes, options.decode_bytes);
  return bytes;
}

}  // namespace

Service::Service(const infer::Predictor& predictor, const ServiceOptions& options)
    : predictor_(predictor),
      options_(options),
      memory_(options.decode_bytes),
      batcher_({.max_batch = options.max_batch, .max_wait = options.batch_wait, .max_queue = options.max_queue},
               [this](const std::vector<Tensor>& batch) { return run_batch(batch); }) {
  check_preprocessing();
  check_memory();
  predictor_.scores(Tensor(predictor_.input_elements()));
}

/// An empty input must fail to decode: this checks the preprocessing without running the network.
void Service::check_preprocessing() const {
  Tensor tensor(predictor_.input_elements());
  try {
    predictor_.preprocess("", tensor);
  } catch (const image::ImageError&) {
  }
}

/// A picture of just the size that the network wants must be possible, a JPEG too.
void Service::check_memory() const {
  const int64_t pixels = int64_t{predictor_.input().height} * predictor_.input().width;
  const size_t least = kJpegBytesPerPixel * static_cast<size_t>(pixels) + 2 * tensor_bytes();
  if (options_.decode_bytes < least)
    throw TooLittleMemory(
        "--decode-memory {} is too little: a single picture of {} pixels, as {} wants it, may take {} bytes",
        options_.decode_bytes, pixels, predictor_.model_name(), least);
}

bool Service::is_quick(const http::Request& request) {
  return request.path == "/healthz" || request.path == "/metrics";
}

http::Response Service::handle(http::Request& request) {
  if (request.path == "/v1/predict" || request.path == "/predict")
    return request.method == "POST" ? predict(request) : wrong_method(request, "POST");
  if (request.path == "/healthz") return is_get(request) ? health(request) : wrong_method(request, "GET, HEAD");
  if (request.path == "/metrics") return is_get(request) ? metrics_page(request) : wrong_method(request, "GET, HEAD");
  return http::error_response(problem("not_found"),
                              fmt::format("no such path: {}; use {}", request.path.substr(0, 100), kPaths));
}

http::Response Service::health(const http::Request& request) const {
  const bool ready = !request.late && !request.server.draining;
  const Json body{{"status", ready ? "ok" : "draining"}, {"model", predictor_.model_name()}};
  return {.status = ready ? 200 : 503, .body = text_of(body)};
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
  } catch (const RequestError& error) {
    return http::error_response(error.problem(), error.what());
  } catch (const UnansweredError& error) {
    return unanswered(error.reason(), options_);
  }
}

/// The request's body is used up: its memory goes into the pictures, or is free while the engine works.
PredictRequest Service::read_request(http::Request& request) const {
  const std::string type = media_type(request);
  if (!request.header("content-encoding").empty())
    throw RequestError(problem("unsupported_type"), "Content-Encoding {} is not supported; send the body as it is",
                       printable(request.header("content-encoding").substr(0, 40)));
  if (!is_picture_type(type) && type != "application/json")
    throw RequestError(
        problem("unsupported_type"),
        "Content-Type is {}; expected image/jpeg, image/png or application/octet-stream for a picture, or "
        "application/json",
        type.empty() ? "missing" : "\"" + printable(type.substr(0, 80)) + "\"");
  std::string body = std::move(request.body);
  if (body.empty()) throw RequestError(problem("empty_body"), "the body is empty; send a picture, or JSON");
  PredictRequest result;
  if (is_picture_type(type))
    result.images.push_back(std::move(body));
  else
    result = parse_predict_json(body, {.images = options_.images_per_request});
  const std::vector<std::string_view> topk = request.parameters("topk");
  if (topk.size() + (result.topk ? 1 : 0) > 1)
    throw RequestError(problem("bad_topk"), "topk is given {} times; give it once",
                       topk.size() + (result.topk ? 1 : 0));
  if (!topk.empty()) result.topk = parse_topk(topk[0]);
  return result;
}

http::Response Service::answer(const PredictRequest& request, Deadline deadline, bool single) {
  std::vector<Picture> pictures;
  pictures.reserve(request.images.size());
  for (const std::string& image : request.images) pictures.push_back(measure(image));
  for (Pictures rest = pictures; !rest.empty();) {
    const Pictures part = next_part(rest);
    answer_part(part, request.topk.value_or(0), deadline);
    rest = rest.subspan(part.size());
  }
  if (std::any_of(pictures.begin(), pictures.end(), [](const Picture& picture) { return !picture.problem; }))
    return {.body = prediction_text(pictures)};
  return refusal(pictures, single);
}

/// Of pictures none of which was answered: what is wrong with the first, unless it is our fault with another.
http::Response Service::refusal(const std::vector<Picture>& pictures, bool single) {
  const auto is_ours = [](const Picture& picture) { return picture.problem->status >= 500; };
  auto worst = std::find_if(pictures.begin(), pictures.end(), is_ours);
  if (worst == pictures.end()) worst = pictures.begin();
  const std::string place = single ? "" : fmt::format("images[{}]: ", worst - pictures.begin());
  return http::error_response(*worst->problem, place + worst->error);
}

Service::Picture Service::measure(std::string_view bytes) {
  Picture picture{.bytes = bytes};
  try {
    picture.decode_bytes = bytes_to_decode(bytes, tensor_bytes(), options_);
  } catch (const UsageError& error) {
    refuse(picture, error);
  }
  return picture;
}

/// As many as a batch and the memory hold; at least one.
Service::Pictures Service::next_part(Pictures rest) const {
  size_t count = 0, decode_bytes = 0;
  while (count < std::min(rest.size(), options_.max_batch)) {
    decode_bytes = std::max(decode_bytes, rest[count].decode_bytes);
    if (count > 0 && (count + 1) * tensor_bytes() + decode_bytes > memory_.total()) break;
    ++count;
  }
  return rest.first(count);
}

/// Takes all its memory at once, as Budget demands: that of the tensors, and of one picture at a time being decoded.
void Service::answer_part(Pictures part, int topk, Deadline deadline) {
  size_t decode_bytes = 0;
  for (const Picture& picture : part) decode_bytes = std::max(decode_bytes, picture.decode_bytes);
  if (decode_bytes == 0) return;  // there is nothing good in it
  auto share = memory_.take(part.size() * tensor_bytes() + decode_bytes, deadline);
  if (!share) throw UnansweredError(Unanswered::timed_out);
  std::vector<Picture*> good;
  std::vector<Tensor> tensors;
  for (Picture& picture : part) {
    if (deadline.passed()) throw UnansweredError(Unanswered::timed_out);
    if (!picture.problem) decode(picture);
    if (picture.problem) continue;
    good.push_back(&picture);
    tensors.push_back(std::move(picture.tensor));
  }
  if (deadline.passed()) throw UnansweredError(Unanswered::timed_out);  // no more work for the engine
  share->keep(tensors.size() * tensor_bytes());
  const std::vector<Tensor> scores = batcher_.run(std::move(tensors), deadline);
  for (size_t i = 0; i < good.size(); ++i) rank(*good[i], scores[i], topk);
}

void Service::decode(Picture& picture) {
  try {
    Tensor tensor(predictor_.input_elements());
    const auto preprocess = [&] { predictor_.preprocess(picture.bytes, tensor); };
    if (picture.decode_bytes > kKeptBytes)
      std::async(std::launch::async, preprocess).get();
    else
      preprocess();
    picture.tensor = std::move(tensor);
  } catch (const UsageError& error) {
    refuse(picture, error);
  }
}

void Service::refuse(Picture& picture, const UsageError& error) {
  const auto* own = dynamic_cast<const RequestError*>(&error);
  picture.problem = own ? &own->problem() : &problem("bad_image");
  picture.error = error.what();
  metrics_.count_refused_picture();
}

void Service::rank(Picture& picture, const Tensor& scores, int topk) {
  try {
    picture.prediction = predictor_.rank(scores, topk);
  } catch (const infer::ScoresError& error) {
    picture.problem = &problem("bad_scores");
    picture.error = error.what();
    metrics_.count_failed_picture();
    log_error("[serve] {}: {}", printable(predictor_.model_name()), error.what());
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

std::string Service::prediction_text(const std::vector<Picture>& pictures) const {
  Json predictions = Json::array();
  for (const Picture& picture : pictures) {
    if (picture.problem) {
      predictions.push_back({{"error", printable(picture.error)}});
      continue;
    }
    const infer::Prediction& prediction = picture.prediction;
    predictions.push_back(
        {{"class_ids", prediction.class_ids}, {"scores", prediction.scores}, {"label_names", prediction.label_names}});
  }
  return text_of({{"model", predictor_.model_name()}, {"predictions", std::move(predictions)}});
}

}  // namespace trireme::serve
