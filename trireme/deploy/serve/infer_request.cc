#include "trireme/deploy/serve/infer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "trireme/core/text.h"

namespace trireme::serve {
namespace {

using Json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

constexpr size_t kMaxDimensions = 8, kMaxText = 1024;
constexpr const char* kInferForm =
    R"(expected {"inputs": [{"name": …, "shape": […], "datatype": "FP32" or "BYTES", "data": […]}]})";

/// What is called with each value of the data, if anything is.
struct DataCallbacks {
  std::function<void(double)> number = {};
  std::function<void(std::string&)> text = {};
};

/// Called by the JSON library for each value in turn.
class InferReader : public nlohmann::json_sax<Json> {
 public:
  InferReader(InferRequest& request, const DataCallbacks& callbacks) : request_(request), callbacks_(callbacks) {}

  bool null() override { return skips() || refuse_value("null"); }
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value), value); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value), static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return number(value, std::nullopt); }
  bool string(string_t& value) override;
  bool binary(binary_t& /*value*/) override { return refuse_value("binary data"); }
  bool start_object(size_t /*size*/) override;
  bool key(string_t& name) override;
  bool end_object() override { return leave(); }
  bool start_array(size_t /*size*/) override;
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& /*why*/) override {
    throw RequestError(problem("bad_json"), "the body is not JSON: unexpected byte {}; {}", position, kInferForm);
  }

 private:
  enum class Place {
    request,
    parameters,
    inputs,
    input,
    shape,
    data,
    input_parameters,
    outputs,
    output,
    output_parameters
  };
  struct Frame {
    Place place;
    std::vector<std::string> keys = {};  // seen; the last one is the current
  };

  bool in_parameters() const {
    return at(Place::parameters) || at(Place::input_parameters) || at(Place::output_parameters);
  }
  /// A value somewhere in `parameters` that means nothing here.
  bool skips() const { return in_parameters() && !(depth_ == 0 && at_known_parameter()); }
  bool at_known_parameter() const {
    return at(Place::parameters, "binary_data_output") || at(Place::input_parameters, "binary_data_size") ||
           at(Place::output_parameters, "binary_data") || at(Place::output_parameters, "classification");
  }
  bool at(Place place) const { return !frames_.empty() && frames_.back().place == place; }
  bool at(Place place, std::string_view key) const { return at(place) && frames_.back().keys.back() == key; }
  bool number(double value, std::optional<int64_t> whole);
  bool enter(Place place) {
    frames_.push_back({place});
    return true;
  }
  bool nest() {
    ++depth_;
    return true;
  }
  bool leave() {
    if (depth_ > 0)
      --depth_;
    else
      frames_.pop_back();
    return true;
  }
  [[noreturn]] static bool refuse_value(std::string_view what) {
    throw RequestError(problem("bad_request"), "the body holds {} where it may not; {}", printable(what.substr(0, 80)),
                       kInferForm);
  }
  InferInput& input() { return request_.inputs.back(); }

  InferRequest& request_;
  const DataCallbacks& callbacks_;
  std::vector<Frame> frames_;
  size_t depth_ = 0;  // of lists in the data, or of what is skipped
};

bool InferReader::start_object(size_t /*size*/) {
  if (frames_.empty()) return enter(Place::request);
  if (depth_ == 0 && at(Place::request, "parameters")) return enter(Place::parameters);
  if (depth_ == 0 && at(Place::input, "parameters")) return enter(Place::input_parameters);
  if (depth_ == 0 && at(Place::output, "parameters")) return enter(Place::output_parameters);
  if (at(Place::inputs)) {
    if (!request_.inputs.empty()) throw RequestError(problem("bad_request"), "the model has one input; {}", kInferForm);
    request_.inputs.emplace_back();
    return enter(Place::input);
  }
  if (at(Place::outputs)) {
    if (!request_.outputs.empty())
      throw RequestError(problem("bad_request"), "the model has one output; {}", kInferForm);
    request_.outputs.emplace_back();
    return enter(Place::output);
  }
  return skips() ? nest() : refuse_value("an object");
}

bool InferReader::start_array(size_t /*size*/) {
  if (at(Place::data)) return nest();
  if (skips()) return nest();
  if (frames_.empty()) refuse_value("a list");
  if (at(Place::request, "inputs")) return enter(Place::inputs);
  if (at(Place::request, "outputs")) return enter(Place::outputs);
  if (at(Place::input, "shape")) return enter(Place::shape);
  if (at(Place::input, "data")) return enter(Place::data);
  return refuse_value("a list");
}

bool InferReader::key(string_t& name) {
  if (depth_ > 0) return true;
  Frame& frame = frames_.back();
  if (in_parameters()) {
    frame.keys.assign(1, name.substr(0, kMaxText));
    return true;
  }
  static const std::vector<std::string> kOfRequest = {"id", "parameters", "inputs", "outputs"},
                                        kOfInput = {"name", "shape", "datatype", "parameters", "data"},
                                        kOfOutput = {"name", "parameters"};
  const auto& known = at(Place::request) ? kOfRequest : at(Place::input) ? kOfInput : kOfOutput;
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!has(known) || has(frame.keys)) refuse_value("the key \"" + name.substr(0, 40) + "\"");
  frame.keys.push_back(name);
  return true;
}

bool InferReader::string(string_t& value) {
  if (at(Place::data)) {
    ++input().values;
    if (callbacks_.text) callbacks_.text(value);
    return true;
  }
  if (skips()) return true;
  std::string* place = at(Place::request, "id")       ? &request_.id
                       : at(Place::input, "name")     ? &input().name
                       : at(Place::input, "datatype") ? &input().datatype
                       : at(Place::output, "name")    ? &request_.outputs.back().name
                                                      : nullptr;
  if (!place) refuse_value("a text");
  if (value.size() > kMaxText) refuse_value("a long text");
  *place = value;
  return true;
}

bool InferReader::boolean(bool value) {
  if (skips()) return true;
  if (at(Place::parameters, "binary_data_output"))
    request_.binary_output = value;
  else if (at(Place::output_parameters, "binary_data"))
    request_.outputs.back().binary = value;
  else
    refuse_value("a truth value");
  return true;
}

bool InferReader::number(double value, std::optional<int64_t> whole) {
  if (at(Place::data)) {
    ++input().values;
    if (callbacks_.number) callbacks_.number(value);
    return true;
  }
  if (at(Place::shape)) {
    if (!whole || *whole < 0 || input().shape.size() == kMaxDimensions) refuse_value("a strange shape");
    input().shape.push_back(*whole);
    return true;
  }
  if (skips()) return true;
  if (at(Place::input_parameters, "binary_data_size")) {
    if (!whole || *whole < 0) refuse_value("a strange binary_data_size");
    input().binary_bytes = static_cast<size_t>(*whole);
  } else if (at(Place::output_parameters, "classification")) {
    if (!whole || *whole < 0) refuse_value("a strange classification");
    request_.outputs.back().classes = static_cast<int>(std::min<int64_t>(*whole, INT_MAX));
  } else {
    refuse_value("a number");
  }
  return true;
}

void read_json(std::string_view json, InferRequest& request, const DataCallbacks& callbacks) {
  InferReader reader(request, callbacks);
  Json::sax_parse(json.begin(), json.end(), &reader);
}

/// The data again, now for the callbacks.
void read_data(const InferRequest& request, std::string_view body, const DataCallbacks& callbacks) {
  InferRequest again;
  read_json(body.substr(0, request.json_bytes), again, callbacks);
}

std::string_view binary_part(const InferRequest& request, std::string_view body) {
  return body.substr(request.json_bytes);
}

void expect(bool right, std::string_view what) {
  if (!right) throw RequestError(problem("bad_tensor"), "{}", what);
}

std::string shown(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// The number of pictures, which is the first of the shape.
size_t check_shape(const InferInput& input, const InferSignature& signature) {
  const bundle::Input& model = signature.input;
  const std::vector<int64_t> tail = {model.channels, model.height, model.width};
  const std::vector<int64_t>& shape = input.shape;
  const bool pictures = input.datatype == "BYTES";
  const bool fits = pictures ? shape.size() == 1 || (shape.size() == 2 && shape[1] == 1)
                             : shape.size() == 4 && std::equal(tail.begin(), tail.end(), shape.begin() + 1);
  expect(fits, fmt::format("the shape of {} is {}; expected {}", printable(input.name), shown(shape),
                           pictures ? "[pictures]" : fmt::format("[pictures, {}]", fmt::join(tail, ", "))));
  expect(shape[0] >= 1, "the shape has no pictures");
  if (static_cast<uint64_t>(shape[0]) > signature.images)
    throw RequestError(problem("too_many_images"), "{} pictures in one request; the limit is {}", shape[0],
                       signature.images);
  return static_cast<size_t>(shape[0]);
}

float finite(double value, size_t index) {
  const auto number = static_cast<float>(value);
  if (!std::isfinite(number)) throw RequestError(problem("bad_tensor"), "data[{}] is not a finite FP32", index);
  return number;
}

uint32_t length_at(std::string_view bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length;
}

}  // namespace

InferRequest parse_infer_request(std::string_view body, std::optional<size_t> header_bytes) {
  InferRequest request;
  if (header_bytes.value_or(0) > body.size())
    throw RequestError(problem("bad_request"), "Inference-Header-Content-Length is {}, but the body has {} bytes",
                       *header_bytes, body.size());
  request.json_bytes = header_bytes.value_or(body.size());
  const size_t json_bytes = request.json_bytes;
  read_json(body.substr(0, json_bytes), request, {});
  if (request.inputs.empty()) throw RequestError(problem("bad_request"), "the body has no inputs; {}", kInferForm);
  return request;
}

size_t check_infer_request(const InferRequest& request, std::string_view body, const InferSignature& signature) {
  const InferInput& input = request.inputs[0];
  expect(input.name == signature.input.name,
         fmt::format("the input is {}, not {}", printable(signature.input.name), printable(input.name)));
  expect(input.datatype == "FP32" || input.datatype == "BYTES",
         fmt::format("the datatype of {} is {}; expected FP32 for tensors or BYTES for pictures", printable(input.name),
                     printable(input.datatype)));
  for (const InferOutput& output : request.outputs)
    expect(output.name == signature.output.name,
           fmt::format("the output is {}, not {}", printable(signature.output.name), printable(output.name)));
  const size_t pictures = check_shape(input, signature);
  const bool tensors = input.datatype == "FP32";
  const size_t values = tensors ? pictures * signature.input.elements() : pictures;
  const size_t rest = binary_part(request, body).size();
  expect(input.binary_bytes.value_or(0) == rest,
         fmt::format("binary_data_size is {}, but {} bytes follow the JSON", input.binary_bytes.value_or(0), rest));
  if (input.binary_bytes) {
    expect(input.values == 0, "the data are given twice, in the JSON and behind it");
    expect(!tensors || rest == values * sizeof(float),
           fmt::format("{} bytes of data; the shape {} has {}", rest, shown(input.shape), values * sizeof(float)));
  } else {
    expect(input.values == values,
           fmt::format("{} values in data; the shape {} has {}", input.values, shown(input.shape), values));
  }
  return pictures;
}

std::vector<EncodedImage> read_images(const InferRequest& request, std::string_view body) {
  std::vector<EncodedImage> images;
  if (!request.inputs[0].binary_bytes) {
    read_data(request, body,
              {.number = [](double) { expect(false, "data holds a number; BYTES in JSON are Base64 texts"); },
               .text = [&](std::string& text) { images.push_back(decode_image_text(std::move(text))); }});
    return images;
  }
  std::string_view rest = binary_part(request, body);
  for (int64_t i = 0; i < request.inputs[0].shape[0]; ++i) {
    const bool whole = rest.size() >= sizeof(uint32_t) && rest.size() - sizeof(uint32_t) >= length_at(rest);
    expect(whole, fmt::format("the bytes end within element {}", i));
    const uint32_t length = length_at(rest);
    images.push_back({std::string(rest.substr(sizeof length, length))});
    rest.remove_prefix(sizeof length + length);
  }
  expect(rest.empty(), fmt::format("{} bytes follow the last element", rest.size()));
  return images;
}

std::vector<Tensor> read_tensors(const InferRequest& request, std::string_view body, size_t elements) {
  std::vector<Tensor> tensors(static_cast<size_t>(request.inputs[0].shape[0]), Tensor(elements));
  size_t index = 0;
  const auto take = [&](double value) {
    tensors[index / elements][index % elements] = finite(value, index);
    ++index;
  };
  if (!request.inputs[0].binary_bytes) {
    read_data(request, body,
              {.number = take, .text = [](std::string&) { expect(false, "data holds a text; FP32 are numbers"); }});
    return tensors;
  }
  const std::string_view bytes = binary_part(request, body);
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    take(value);
  }
  return tensors;
}

// --- the answer

namespace {

/// "0.9:281:tabby", as Triton writes a class.
std::string class_text(const infer::Prediction& prediction, size_t i) {
  const std::string label = prediction.label_names.empty() ? "" : ":" + prediction.label_names[i];
  return fmt::format("{:f}:{}{}", prediction.scores[i], prediction.class_ids[i], label);
}

std::string binary_text(std::string_view text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes.append(text);
}

struct Written {
  std::vector<int64_t> shape;
  std::string_view datatype;
  std::string data;  // the JSON list, or bytes
};

Written write_classes(const InferAnswer& answer, bool binary) {
  Json list = Json::array();
  std::string bytes;
  size_t classes = 0;
  for (const Picture& picture : answer.pictures) {
    classes = picture.prediction.class_ids.size();
    for (size_t i = 0; i < classes; ++i) {
      if (binary)
        bytes += binary_text(class_text(picture.prediction, i));
      else
        list.push_back(class_text(picture.prediction, i));
    }
  }
  return {{static_cast<int64_t>(answer.pictures.size()), static_cast<int64_t>(classes)},
          "BYTES",
          binary ? bytes : list.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

Written write_scores(const InferAnswer& answer, bool binary) {
  std::string data;
  for (const Picture& picture : answer.pictures) {
    if (binary)
      data.append(reinterpret_cast<const char*>(picture.scores.data()), picture.scores.size() * sizeof(float));
    else
      fmt::format_to(std::back_inserter(data), "{}{}", data.empty() ? "" : ",", fmt::join(picture.scores, ","));
  }
  return {{static_cast<int64_t>(answer.pictures.size()), answer.output.class_num},
          "FP32",
          binary ? data : "[" + data + "]"};
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

http::Response infer_response(const InferAnswer& answer) {
  const InferRequest& request = answer.request;
  const InferOutput output = request.outputs.empty() ? InferOutput{.name = answer.output.name} : request.outputs[0];
  const bool binary = output.binary.value_or(request.binary_output);
  const Written written = output.classes > 0 ? write_classes(answer, binary) : write_scores(answer, binary);
  const std::string data = binary ? fmt::format(R"("parameters":{{"binary_data_size":{}}})", written.data.size())
                                  : fmt::format(R"("data":{})", written.data);
  const std::string id = request.id.empty() ? "" : fmt::format(R"("id":{},)", json_text(request.id));
  http::Response response{.body = fmt::format(R"({{{}"model_name":{},"model_version":"1",)"
                                              R"("outputs":[{{"name":{},"datatype":"{}","shape":{},{}}}]}})",
                                              id, json_text(std::string(answer.model)), json_text(output.name),
                                              written.datatype, shown(written.shape), data)};
  if (!binary) return response;
  response.type = "application/octet-stream";
  response.headers.emplace_back("Inference-Header-Content-Length", std::to_string(response.body.size()));
  response.body += written.data;
  return response;
}

}  // namespace trireme::serve
