#include "trireme/deploy/serve/predict_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// "code: message" of the refusal.
std::string refusal(const std::string& body) {
  try {
    parse_predict_json(body, {.images = 3});
  } catch (const RequestError& error) {
    return fmt::format("{}: {}", error.problem().code, error.what());
  }
  return "accepted";
}

std::vector<std::string> bytes_of(const PredictRequest& request) {
  std::vector<std::string> bytes;
  for (const EncodedImage& image : request.images) bytes.push_back(image.bytes);
  return bytes;
}

TEST(PredictRequest, ReadsImagesAndTopk) {
  const auto request = parse_predict_json(R"({"topk": 3, "images": ["aGVsbG8=", "YQ==", "YWJj"]})", {.images = 3});
  EXPECT_THAT(bytes_of(request), ElementsAre("hello", "a", "abc"));
  EXPECT_EQ(request.topk, 3);
  EXPECT_EQ(parse_predict_json(R"({"images": ["YQ=="]})", {}).topk, std::nullopt);
}

TEST(PredictRequest, APictureMayBeADataUrl) {
  const auto request = parse_predict_json(
      R"({"images": ["data:image/png;base64,aGVsbG8=", "DATA:;Base64,YQ==", "data:image/jpeg;x=y;base64,"]})", {});
  EXPECT_THAT(bytes_of(request), ElementsAre("hello", "a", ""));
  for (const char* text : {"data:image/png,YQ==", "data:image/png;base64", "data:", "image/png;base64,YQ=="})
    EXPECT_NE(decode_image_text(text).error, "") << text;
}

TEST(PredictRequest, LinesOfBase64AreOneText) {
  EXPECT_THAT(bytes_of(parse_predict_json(R"({"images": ["aGVs\nbG8=\n", "YW\r\nJj"]})", {})),
              ElementsAre("hello", "abc"));
}

TEST(PredictRequest, ATextThatIsNotBase64IsAnErrorOfThatPictureAlone) {
  const auto request = parse_predict_json(R"({"images": ["YQ==", "Y-==", "YQ="]})", {});
  EXPECT_THAT(bytes_of(request), ElementsAre("a", "", ""));
  EXPECT_EQ(request.images[0].error, "");
  EXPECT_THAT(request.images[1].error, HasSubstr("character 2"));
  EXPECT_THAT(request.images[2].error, HasSubstr("3 characters"));
}

TEST(PredictRequest, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("{\"images\": [\"YQ==\""), HasSubstr("bad_json: the body is not JSON: unexpected byte 19"));
  EXPECT_THAT(refusal("\xff\xd8\xff"), HasSubstr("bad_json"));
  EXPECT_THAT(refusal(R"({"images": ["YQ=="]} x)"), HasSubstr("bad_json"));
  EXPECT_THAT(refusal(R"({"images": ["", "", "", ""]})"), HasSubstr("too_many_images: more than 3"));
  EXPECT_THAT(refusal(R"({"images": []})"), HasSubstr("no_images"));
  EXPECT_THAT(refusal("{}"), HasSubstr("no_images"));
  EXPECT_THAT(refusal(R"({"image": ["YQ=="]})"), HasSubstr(R"(the key "image")"));
  EXPECT_THAT(refusal(R"({"images": ["YQ=="], "images": ["YQ=="]})"), HasSubstr(R"(the key "images")"));
}

TEST(PredictRequest, RefusesStrangeValues) {
  for (const char* body :
       {"[]", "5", "null", "\"text\"", "true", R"({"images": "YQ=="})", R"({"images": [5]})",
        R"({"images": [["YQ=="]]})", R"({"images": {"a": 1}})", R"({"images": [null]})", R"({"topk": "5"})",
        R"({"topk": 1.5})", R"({"topk": null})", R"({"topk": [1]})", R"({"a": {"b": 1}})"})
    EXPECT_THAT(refusal(body), HasSubstr("bad_request")) << body;
  for (const char* topk : {"0", "-1", "99999999999", "18446744073709551615"})
    EXPECT_THAT(refusal(fmt::format(R"({{"topk": {}}})", topk)), HasSubstr("bad_topk")) << topk;
}

TEST(PredictRequest, DepthCostsNothing) {
  EXPECT_THAT(refusal(std::string(1u << 20, '[')), HasSubstr("bad_request"));
  EXPECT_THAT(refusal(R"({"images": )" + std::string(1u << 20, '[')), HasSubstr("bad_request"));
}

TEST(PredictRequest, TopkOfAQuery) {
  EXPECT_EQ(parse_topk("5"), 5);
  for (const char* text : {"0", "-1", "5x", "", "1e3"}) EXPECT_THROW(parse_topk(text), RequestError) << text;
  try {
    parse_topk("many");
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_STREQ(error.what(), "topk is \"many\"; expected a whole number from 1 to 2147483647");
  }
}

}  // namespace
}  // namespace trireme::serve
