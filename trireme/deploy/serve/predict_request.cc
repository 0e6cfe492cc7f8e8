#include "trireme/deploy/serve/predict_request.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "trireme/core/base64.h"
#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

using Json = nlohmann::json;

constexpr const char* kPredictForm = R"(expected {"images": ["Base64 of a JPEG or PNG", …], "topk": 5})";

/// The Base64 of a text that may be a whole data: URL.
std::string_view base64_of(std::string_view text) {
  if (to_lower(text.substr(0, 5)) != "data:") return text;
  const std::string_view head = text.substr(0, text.find(','));
  return to_lower(head).ends_with(";base64") && head.size() < text.size() ? text.substr(head.size() + 1) : text;
}

/// Called by the JSON library for each value in turn.
class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(PredictRequest& request, const PredictLimits& limits) : request_(request), limits_(limits) {}

  bool null() override { return refuse_value("null"); }
  bool boolean(bool /*value*/) override { return refuse_value("a truth value"); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return refuse_value(text); }
  bool binary(binary_t& /*value*/) override { return refuse_value("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    return number_integer(static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)));
  }
  bool number_integer(number_integer_t value) override {
    if (place_ != Place::topk) return refuse_value(std::to_string(value));
    request_.topk = parse_topk(std::to_string(value));
    place_ = Place::object;
    return true;
  }
  bool string(string_t& value) override;
  bool start_object(size_t /*size*/) override {
    return std::exchange(place_, Place::object) == Place::start || refuse_value("an object");
  }
  bool end_object() override { return true; }
  bool key(string_t& name) override;
  bool start_array(size_t /*size*/) override {
    return std::exchange(place_, Place::list) == Place::images || refuse_value("a list");
  }
  bool end_array() override {
    place_ = Place::object;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& /*why*/) override {
    throw RequestError(problem("bad_json"), "the body is not JSON: unexpected byte {}; {}", position, kPredictForm);
  }

 private:
  enum class Place { start, object, images, list, topk };

  [[noreturn]] static bool refuse_value(const std::string& what) {
    throw RequestError(problem("bad_request"), "the body holds {} where it may not; {}", printable(what), kPredictForm);
  }

  PredictRequest& request_;
  const PredictLimits& limits_;
  Place place_ = Place::start;
  bool seen_images_ = false;
};

bool Reader::string(string_t& value) {
  if (place_ != Place::list) refuse_value("a text");
  if (request_.images.size() == limits_.images)
    throw RequestError(problem("too_many_images"), "more than {} images in one request; send several requests",
                       limits_.images);
  request_.images.push_back(decode_image_text(std::move(value)));
  return true;
}

bool Reader::key(string_t& name) {
  if (name == "topk" && !request_.topk) {
    place_ = Place::topk;
  } else if (name == "images" && !std::exchange(seen_images_, true)) {
    place_ = Place::images;
  } else {
    refuse_value("the key \"" + name.substr(0, 40) + "\"");
  }
  return true;
}

}  // namespace

EncodedImage decode_image_text(std::string text) {
  std::erase_if(text, [](char c) { return c == '\n' || c == '\r'; });  // as mail has it, and many encoders
  Base64Decoded picture = base64_decode(base64_of(text));
  return {std::move(picture.bytes), std::move(picture.error)};
}

PredictRequest parse_predict_json(std::string_view body, const PredictLimits& limits) {
  PredictRequest request;
  Reader reader(request, limits);
  Json::sax_parse(body.begin(), body.end(), &reader);
  if (request.images.empty()) throw RequestError(problem("no_images"), "the body names no images; {}", kPredictForm);
  return request;
}

int parse_topk(std::string_view text) {
  const auto number = parse_int(text, 1, INT_MAX);
  if (!number)
    throw RequestError(problem("bad_topk"), "topk is \"{}\"; expected a whole number from 1 to {}",
                       printable(text.substr(0, 40)), INT_MAX);
  return static_cast<int>(*number);
}

}  // namespace trireme::serve
