#include "trireme/deploy/serve/service.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/deploy/serve/openapi.h"
#include "trireme/deploy/serve/problems.h"

namespace trireme::serve {
namespace {

using Json = nlohmann::json;

constexpr const char* kModelVersion = "1";  // a folder holds one version

/// Names out of a model's files need not be UTF-8; what is not is replaced.
std::string text_of(const Json& body) {
  return body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

http::Response json_page(const Json& body, int status = 200) {
  return {.status = status, .body = text_of(body)};
}

bool is_v2(std::string_view path) {
  return path == "/v2" || path.starts_with("/v2/");
}

/// As the clients of each protocol read it.
http::Response refusal(const http::Request& request, const http::Problem& problem, std::string_view message) {
  http::Response response = http::error_response(problem, message);
  if (is_v2(request.path)) response.body = text_of({{"error", printable(message)}});
  return response;
}

http::Response no_route(const http::Request& request, const std::string& allowed) {
  if (allowed.empty())
    return refusal(
        request, problem("not_found"),
        fmt::format("no such path: {}; use POST /v1/predict, GET /healthz or GET /metrics; GET /openapi.json "
                    "lists all",
                    request.path.substr(0, 100)));
  http::Response response =
      refusal(request, problem("method_not_allowed"),
              fmt::format("{} takes {}, not {}", request.path.substr(0, 100), allowed, request.method));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

/// "image/jpeg" out of "Image/JPEG; x=y".
std::string media_type(const http::Request& request) {
  const std::string_view value = request.header("content-type");
  return to_lower(trim(value.substr(0, value.find(';'))));
}

bool is_picture_type(const std::string& type) {
  return type == "image/jpeg" || type == "image/png" || type == "application/octet-stream";
}

/// How many bytes of the body are JSON; nothing: all.
std::optional<size_t> json_bytes(const http::Request& request) {
  const std::string_view text = request.header("inference-header-content-length");
  if (text.empty()) return std::nullopt;
  const auto number = parse_int(text, 0, INT64_MAX);
  if (!number)
    throw RequestError(problem("bad_request"), "Inference-Header-Content-Length is not a number of bytes: {}",
                       printable(text.substr(0, 40)));
  return static_cast<size_t>(*number);
}

void expect_plain(const http::Request& request) {
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && to_lower(encoding) != "identity")
    throw RequestError(problem("unsupported_type"), "Content-Encoding {} is not supported; send the body as it is",
                       printable(encoding.substr(0, 40)));
}

/// Of pictures none of which was answered: what is wrong with the first, unless it is our fault with another.
const Picture& worst_of(const std::vector<Picture>& pictures) {
  const auto is_ours = [](const Picture& picture) { return picture.problem && picture.problem->status >= 500; };
  const auto worst = std::find_if(pictures.begin(), pictures.end(), is_ours);
  if (worst != pictures.end()) return *worst;
  return *std::find_if(pictures.begin(), pictures.end(), [](const Picture& picture) { return picture.problem; });
}

bool is_answered(const Picture& picture) {
  return !picture.problem;
}

http::Response refuse_all(const http::Request& request, const std::vector<Picture>& pictures, std::string_view list) {
  const Picture& worst = worst_of(pictures);
  const std::string place = list.empty() ? "" : fmt::format("{}[{}]: ", list, &worst - pictures.data());
  return refusal(request, *worst.problem, place + worst.error);
}

std::string prediction_text(const std::string& model, const std::vector<Picture>& pictures) {
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
  return text_of({{"model", model}, {"predictions", std::move(predictions)}});
}

Json server_data() {
  return {{"name", "trireme"}, {"version", kVersion}, {"extensions", {"binary_tensor_data", "classification"}}};
}

Json model_data(const Model& model) {
  const bundle::Input& input = model.predictor().input();
  const bundle::Output& output = model.predictor().output();
  return {{"name", model.name()},
          {"versions", {kModelVersion}},
          {"platform", "trireme"},
          {"inputs",
           {{{"name", input.name}, {"datatype", "FP32"}, {"shape", {-1, input.channels, input.height, input.width}}}}},
          {"outputs", {{{"name", output.name}, {"datatype", "FP32"}, {"shape", {-1, output.class_num}}}}}};
}

}  // namespace

Service::Service(const Models::Find& find, const ServiceOptions& options)
    : options_(options), memory_(options.decode_bytes), models_(find, [this](const ModelSource& source) {
        infer::Predictor predictor = source.load();
        std::string name = source.name.empty() ? predictor.model_name() : source.name;
        return std::make_shared<Model>(std::move(name), std::move(predictor), options_, Shared{&memory_, &metrics_});
      }) {}

bool Service::is_quick(const http::Request& request) {
  const Match match = match_route(request.method, request.path);
  return !match.route || (match.route->page != Page::predict && match.route->page != Page::infer);
}

bool Service::reload() {
  const bool all = models_.reload(options_.request_timeout);
  metrics_.count_reload(all);
  return all;
}

http::Response Service::handle(http::Request& request) {
  const Match match = match_route(request.method, request.path);
  if (!match.route) return no_route(request, match.allowed);
  try {
    return answer(match, request);
  } catch (const RequestError& error) {
    return refusal(request, error.problem(), error.what());
  } catch (const UnansweredError& error) {
    return unanswered(request, error.reason());
  }
}

http::Response Service::answer(const Match& match, http::Request& request) {
  switch (match.route->page) {
    case Page::predict:
      return predict(match, request);
    case Page::infer:
      return infer(match, request);
    case Page::health:
      return health(request);
    case Page::metrics:
      return metrics_page(request);
    case Page::openapi:
      return {.body = openapi_json()};
    case Page::docs:
      return {.type = "text/html; charset=utf-8", .body = openapi_html()};
    case Page::server_data:
      return json_page(server_data());
    case Page::live:
      return json_page({{"live", true}});
    case Page::ready:
      return json_page({{"ready", is_ready(request)}}, is_ready(request) ? 200 : 503);
    case Page::model_data:
      return json_page(model_data(*model_of(match)));
    case Page::model_ready:
      return json_page({{"name", model_of(match)->name()}, {"ready", is_ready(request)}},
                       is_ready(request) ? 200 : 503);
  }
  return no_route(request, "");
}

std::shared_ptr<Model> Service::model_of(const Match& match) const {
  const bool named = match.route->path.find("{name}") != std::string_view::npos;
  const std::shared_ptr<Model> model = named ? models_.find(match.model) : models_.only();
  const bool known_version = match.version.empty() || match.version == kModelVersion;
  if (model && known_version) return model;
  const std::string names = join(models_.names(), ", ");
  if (!named)
    throw RequestError(problem("which_model"), "there are several models: {}; use /v1/models/NAME/predict", names);
  if (model)
    throw RequestError(problem("no_such_model"), "{} has no version {}; the only one is {}", model->name(),
                       printable(match.version.substr(0, 100)), kModelVersion);
  throw RequestError(problem("no_such_model"), "there is no model {}; there are: {}",
                     printable(match.model.substr(0, 100)), names);
}

RequestContext Service::context_of(const http::Request& request) const {
  return {.deadline = Deadline::at(request.arrived + options_.request_timeout), .request = &request};
}

http::Response Service::unanswered(const http::Request& request, Unanswered reason) const {
  switch (reason) {
    case Unanswered::queue_full:
      return refusal(request, http::problem("overloaded"),
                     fmt::format("{} pictures wait already; retry", options_.max_queue));
    case Unanswered::timed_out:
      return refusal(request, problem("timeout"),
                     fmt::format("no answer within {:.3g} s (--request-timeout)",
                                 std::chrono::duration<double>(options_.request_timeout).count()));
    case Unanswered::client_left:
      return refusal(request, http::problem("client_left"), "the client has left");
    case Unanswered::stopped:
      break;
  }
  return refusal(request, problem("draining"), "the server is shutting down");
}

// --- pages

bool Service::is_ready(const http::Request& request) const {
  return !request.late && !request.server.draining && !retiring_;
}

http::Response Service::health(const http::Request& request) const {
  const bool ready = is_ready(request);
  const std::vector<std::string> names = models_.names();
  Json body{{"status", ready ? "ok" : "draining"}};
  if (names.size() == 1)
    body["model"] = names[0];
  else
    body["models"] = names;
  return json_page(body, ready ? 200 : 503);
}

http::Response Service::metrics_page(const http::Request& request) const {
  return {.type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_.text({.queued = models_.waiting(),
                                 .in_flight = request.server.in_flight,
                                 .connections = request.server.connections,
                                 .models = models_.names().size(),
                                 .draining = request.server.draining || retiring_})};
}

// --- POST /v1/predict

http::Response Service::predict(const Match& match, http::Request& request) {
  if (request.late) throw UnansweredError(Unanswered::stopped);
  const std::shared_ptr<Model> model = model_of(match);
  const bool single = is_picture_type(media_type(request));
  const PredictRequest asked = read_request(request);
  std::vector<Picture> pictures = model->answer(asked.images, context_of(request));
  for (Picture& picture : pictures)
    if (is_answered(picture)) model->rank(picture, asked.topk.value_or(0));
  if (std::any_of(pictures.begin(), pictures.end(), is_answered))
    return {.body = prediction_text(model->name(), pictures)};
  return refuse_all(request, pictures, single ? "" : "images");
}

/// The request's body is used up: its memory goes into the pictures, or is free while the engine works.
PredictRequest Service::read_request(http::Request& request) const {
  const std::string type = media_type(request);
  expect_plain(request);
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
    result.images.push_back({std::move(body)});
  else
    result = parse_predict_json(body, {.images = options_.images_per_request});
  const std::vector<std::string_view> topk = request.parameters("topk");
  if (topk.size() + (result.topk ? 1 : 0) > 1)
    throw RequestError(problem("bad_topk"), "topk is given {} times; give it once",
                       topk.size() + (result.topk ? 1 : 0));
  if (!topk.empty()) result.topk = parse_topk(topk[0]);
  return result;
}

// --- POST /v2/models/NAME/infer

http::Response Service::infer(const Match& match, http::Request& request) {
  if (request.late) throw UnansweredError(Unanswered::stopped);
  const std::shared_ptr<Model> model = model_of(match);
  expect_plain(request);
  const infer::Predictor& predictor = model->predictor();
  const InferRequest asked = parse_infer_request(request.body, json_bytes(request));
  check_infer_request(
      asked, request.body,
      {.input = predictor.input(), .output = predictor.output(), .images = options_.images_per_request});
  std::vector<EncodedImage> images;
  std::vector<Picture> pictures;
  if (asked.inputs[0].datatype == "FP32") {
    pictures = infer_tensors(*model, asked, request);
  } else {
    images = read_images(asked, std::exchange(request.body, {}));  // the memory of the body is free from here
    pictures = model->answer(images, context_of(request));
  }
  const int classes = asked.outputs.empty() ? 1 : std::max(1, asked.outputs[0].classes);
  for (Picture& picture : pictures)
    if (is_answered(picture)) model->rank(picture, classes);
  if (!std::all_of(pictures.begin(), pictures.end(), is_answered)) return refuse_all(request, pictures, "data");
  return infer_response({model->name(), asked, predictor.output(), pictures});
}

/// Takes the memory of all tensors at once, as Budget demands.
std::vector<Picture> Service::infer_tensors(Model& model, const InferRequest& asked, http::Request& request) {
  const RequestContext context = context_of(request);
  const auto count = static_cast<size_t>(asked.inputs[0].shape[0]);
  const size_t bytes = count * model.tensor_bytes();
  if (bytes > memory_.total())
    throw RequestError(problem("image_too_large"), "{} tensors take {} bytes; the limit is {} (--decode-memory)", count,
                       bytes, memory_.total());
  context.expect_wanted();
  const auto share = memory_.take(bytes, context.deadline);
  if (!share) throw UnansweredError(Unanswered::timed_out);
  std::vector<Tensor> tensors =
      read_tensors(asked, std::exchange(request.body, {}), model.predictor().input_elements());
  std::vector<Picture> pictures;
  for (auto next = tensors.begin(); next != tensors.end();) {
    const auto end =
        next + std::min<std::ptrdiff_t>(tensors.end() - next, static_cast<std::ptrdiff_t>(options_.max_batch));
    std::vector<Tensor> part(std::make_move_iterator(next), std::make_move_iterator(end));
    for (Tensor& scores : model.scores(std::move(part), context)) pictures.push_back({.scores = std::move(scores)});
    next = end;
  }
  return pictures;
}

}  // namespace trireme::serve
