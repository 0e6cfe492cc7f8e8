#include "trireme/deploy/serve/infer_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace trireme::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const bundle::Input kInput{.name = "x", .channels = 1, .height = 1, .width = 2};
const bundle::Output kOutput{.name = "out", .class_num = 3};

size_t check_asked(const InferRequest& request, std::string_view body) {
  return check_infer_request(request, body, {.input = kInput, .output = kOutput, .images = 3});
}

/// "code: message" of the refusal.
std::string infer_refusal(const std::string& body, std::optional<size_t> header = {}) {
  try {
    const InferRequest request = parse_infer_request(body, header);
    check_asked(request, body);
    if (request.inputs[0].datatype == "FP32")
      read_tensors(request, body, kInput.elements());
    else
      read_images(request, body);
  } catch (const RequestError& error) {
    return fmt::format("{}: {}", error.problem().code, error.what());
  }
  return "accepted";
}

std::string one_input(const std::string& rest) {
  return R"({"inputs": [{"name": "x", )" + rest + "}]}";
}

std::string floats_of(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

TEST(InferRequest, ReadsTensorsInJsonFlatAndNested) {
  for (const char* data : {"[1, 2.5, 3, -4]", "[[[[1, 2.5]]], [[[3, -4]]]]"}) {
    const std::string body = fmt::format(
        R"({{"id": "7", "parameters": {{"a": [{{}}], "b": null}}, "inputs": [{{"name": "x", "shape": [2, 1, 1, 2],
            "datatype": "FP32", "data": {}}}], "outputs": [{{"name": "out", "parameters": {{"classification": 2}}}}]}})",
        data);
    const InferRequest request = parse_infer_request(body, {});
    EXPECT_EQ(request.id, "7");
    EXPECT_EQ(check_asked(request, body), 2U);
    EXPECT_THAT(read_tensors(request, body, 2), ElementsAre(ElementsAre(1, 2.5), ElementsAre(3, -4)));
    EXPECT_EQ(request.outputs[0].classes, 2);
  }
}

TEST(InferRequest, ReadsTensorsBehindTheJson) {
  const std::string json =
      one_input(R"("shape": [1, 1, 1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8})");
  const std::string body = json + floats_of({0.5F, 7});
  const InferRequest request = parse_infer_request(body, json.size());
  EXPECT_EQ(check_asked(request, body), 1U);
  EXPECT_THAT(read_tensors(request, body, 2), ElementsAre(ElementsAre(0.5, 7)));
}

TEST(InferRequest, ReadsPicturesInBothForms) {
  const std::string json = one_input(R"("shape": [2], "datatype": "BYTES", "data": ["aGVsbG8=", "Y-=="])");
  const std::vector<EncodedImage> images = read_images(parse_infer_request(json, {}), json);
  EXPECT_EQ(images[0].bytes, "hello");
  EXPECT_THAT(images[1].error, HasSubstr("Base64"));
  const std::string head = one_input(R"("shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 11})");
  const std::string body = head + std::string("\3\0\0\0abc\0\0\0\0", 11);
  const InferRequest request = parse_infer_request(body, head.size());
  EXPECT_EQ(check_asked(request, body), 2U);
  EXPECT_EQ(read_images(request, body)[0].bytes, "abc");
  EXPECT_EQ(read_images(request, body)[1].bytes, "");
}

TEST(InferRequest, SaysWhatIsWrong) {
  const std::string good = one_input(R"("shape": [1, 1, 1, 2], "datatype": "FP32", "data": [1, 2])");
  EXPECT_EQ(infer_refusal(good), "accepted");
  EXPECT_THAT(infer_refusal(good, good.size() + 1), HasSubstr("bad_request: Inference-Header-Content-Length"));
  EXPECT_THAT(infer_refusal(good + "    ", good.size()),
              HasSubstr("bad_tensor: binary_data_size is 0, but 4 bytes follow"));
  EXPECT_THAT(infer_refusal("{"), HasSubstr("bad_json"));
  EXPECT_THAT(infer_refusal(""), HasSubstr("bad_json"));
  EXPECT_THAT(infer_refusal(good, 0), HasSubstr("bad_json"));
  EXPECT_THAT(infer_refusal("{}"), HasSubstr("bad_request: the body has no inputs"));
  EXPECT_THAT(infer_refusal(R"({"inputs": [{}, {}]})"), HasSubstr("one input"));
  EXPECT_THAT(infer_refusal(R"({"outputs": [{"name": "out"}, {"name": "out"}]})"),
              HasSubstr("bad_request: the model has one output"));
  EXPECT_THAT(infer_refusal(R"({"inputs": [{"name": "y"}]})"), HasSubstr("bad_tensor: the input is x, not y"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [1, 1, 1, 2], "datatype": "INT8", "data": [1, 2])")),
              HasSubstr("INT8"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [1, 1, 2], "datatype": "FP32", "data": [1, 2])")),
              HasSubstr("the shape of x is [1, 1, 2]; expected [pictures, 1, 1, 2]"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [1, 1, 1, 2], "datatype": "FP32", "data": [1])")),
              HasSubstr("1 values in data; the shape [1, 1, 1, 2] has 2"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [0, 1, 1, 2], "datatype": "FP32", "data": [])")),
              HasSubstr("no pictures"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [9223372036854775807, 1, 1, 2], "datatype": "FP32", "data": [])")),
              HasSubstr("too_many_images"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [1, 1, 1, 2], "datatype": "FP32", "data": [1, 1e39])")),
              HasSubstr("data[1] is not a finite"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [1, 1, 1, 2], "datatype": "FP32", "data": [1, "2"])")),
              HasSubstr("a text"));
  EXPECT_THAT(infer_refusal(one_input(R"("shape": [2], "datatype": "BYTES", "data": [1, "YQ=="])")),
              HasSubstr("a number"));
  const std::string nan =
      one_input(R"("shape": [1, 1, 1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8})");
  EXPECT_THAT(infer_refusal(nan + floats_of({1, std::numeric_limits<float>::quiet_NaN()}), nan.size()),
              HasSubstr("data[1] is not a finite"));
  EXPECT_THAT(infer_refusal(nan + floats_of({1}), nan.size()), HasSubstr("binary_data_size is 8, but 4 bytes"));
  const std::string texts = one_input(R"("shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6})");
  EXPECT_THAT(infer_refusal(texts + std::string("\3\0\0\0ab", 6), texts.size()), HasSubstr("end within element 0"));
  EXPECT_THAT(infer_refusal(texts + std::string("\1\0\0\0ab", 6), texts.size()), HasSubstr("1 bytes follow the last"));
}

TEST(InferRequest, RefusesStrangeValues) {
  for (const char* body : {"[]",
                           "5",
                           "null",
                           R"({"inputs": 5})",
                           R"({"inputs": [5]})",
                           R"({"inputs": {}})",
                           R"({"id": 5})",
                           R"({"other": 5})",
                           R"({"inputs": [{"name": 5}]})",
                           R"({"inputs": [{"shape": 5}]})",
                           R"({"inputs": [{"shape": [-1]}]})",
                           R"({"inputs": [{"shape": [1.5]}]})",
                           R"({"inputs": [{"shape": [[1]]}]})",
                           R"({"inputs": [{"data": [null]}]})",
                           R"({"inputs": [{"data": [[{"a": 1}]]}]})",
                           R"({"inputs": [{"data": [true]}]})",
                           R"({"inputs": [{"name": "x", "name": "x"}]})",
                           R"({"inputs": [{"parameters": {"binary_data_size": -1}}]})",
                           R"({"inputs": [{"parameters": {"binary_data_size": "8"}}]})",
                           R"({"inputs": [{"parameters": {"binary_data_size": [8]}}]})",
                           R"({"outputs": [{"parameters": {"classification": "3"}}]})",
                           R"({"outputs": [{"parameters": {"classification": true}}]})",
                           R"({"outputs": [{"parameters": {"classification": {"k": 3}}}]})",
                           R"({"outputs": [{"parameters": {"binary_data": 1}}]})",
                           R"({"parameters": {"binary_data_output": "true"}})",
                           R"({"parameters": {"binary_data_output": null}})",
                           R"({"outputs": [{"data": 1}]})",
                           R"({"inputs": [], "inputs": []})",
                           R"({"parameters": 5})"})
    EXPECT_THAT(infer_refusal(body), HasSubstr("bad_request")) << body;
}

TEST(InferRequest, ParametersOfOthersAreSkippedWhereverTheyHaveOurNames) {
  const std::string body =
      R"({"parameters": {"a": {"binary_data_output": "x"}, "classification": "3", "b": [true, {"binary_data": 5}]},
          "inputs": [{"name": "x", "shape": [1, 1, 1, 2], "datatype": "FP32", "data": [1, 2],
                      "parameters": {"classification": null, "binary_data": "x"}}]})";
  EXPECT_EQ(infer_refusal(body), "accepted");
}

TEST(InferRequest, DepthCostsNothing) {
  const std::string deep(1u << 20, '[');
  EXPECT_THAT(infer_refusal(deep), HasSubstr("bad_request"));
  EXPECT_THAT(infer_refusal(R"({"parameters": {"a": )" + deep), HasSubstr("bad_json"));
  EXPECT_THAT(infer_refusal(R"({"inputs": [{"data": )" + deep), HasSubstr("bad_json"));
}

}  // namespace
}  // namespace trireme::serve
