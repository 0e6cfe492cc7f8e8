#include "trireme/deploy/infer/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/data/image/test_images.h"

namespace trireme::infer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kClasses = 3;

/// Scores of a picture: the means of its three channels.
class ChannelMeans : public Engine {
 public:
  explicit ChannelMeans(std::atomic<int>& runs) : runs_(runs) {}
  std::string name() const override { return "channel means"; }
  void run(std::span<const float> images, int64_t batch, std::span<float> scores) override {
    ++runs_;
    const size_t plane = images.size() / static_cast<size_t>(batch) / kClasses;
    for (size_t i = 0; i < scores.size(); ++i) {
      float sum = 0;
      for (const float value : images.subspan(i * plane, plane)) sum += value;
      scores[i] = sum / static_cast<float>(plane);
    }
  }

 private:
  std::atomic<int>& runs_;
};

constexpr const char* kModel = R"(
Global: {model_name: Means}
Input: {shape: [-1, 3, 8, 8]}
Output: {class_num: 3}
PreProcess: {transform_ops: [ResizeImage: {size: [8, 8]}, NormalizeImage: {mean: [0, 0, 0], std: [1, 1, 1]}]}
PostProcess: {Topk: {topk: 2, label_list: [red, green, blue]}}
)";

class PredictorTest : public testing::Test {
 protected:
  Predictor make(const std::string& model = kModel, const PredictorOptions& options = {}) {
    return {bundle::parse(model, "f"), std::make_unique<ChannelMeans>(runs), options};
  }
  std::atomic<int> runs{0};
};

std::string picture(uint8_t r, uint8_t g, uint8_t b) {
  image::Image image;
  image.reshape(20, 10);
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    image.pixels[i] = r;
    image.pixels[i + 1] = g;
    image.pixels[i + 2] = b;
  }
  return image::jpeg_of(image, {.quality = 100, .sampling = 1});
}

TEST_F(PredictorTest, NamesTheBestClasses) {
  const Prediction best = make().predict(picture(0, 51, 255));
  EXPECT_THAT(best.class_ids, ElementsAre(2, 1));
  EXPECT_THAT(best.label_names, ElementsAre("blue", "green"));
  EXPECT_NEAR(best.scores[0], 1, 0.01);
  EXPECT_NEAR(best.scores[1], 0.2, 0.01);
}

TEST_F(PredictorTest, OneBadPictureDoesNotSpoilTheBatch) {
  const Predictor predictor = make();
  const std::string red = picture(255, 0, 0), green = picture(0, 255, 0), half = red.substr(0, red.size() / 2);
  const std::vector<std::string_view> files = {red, "no picture", green, half, ""};
  const auto answers = predictor.predict(files);
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers[0].prediction, predictor.predict(red));
  EXPECT_EQ(answers[2].prediction, predictor.predict(green));
  for (const size_t bad : {1, 3, 4}) {
    EXPECT_FALSE(answers[bad].ok());
    EXPECT_TRUE(answers[bad].prediction.class_ids.empty());
  }
  EXPECT_THROW(predictor.predict("no picture"), UsageError);
}

TEST_F(PredictorTest, OnlyBadPicturesDoNotTroubleTheEngine) {
  const std::vector<std::string_view> files = {"no", "picture"};
  const auto answers = make().predict(files);
  EXPECT_EQ(answers.size(), 2u);
  EXPECT_EQ(runs, 0);
  EXPECT_TRUE(make().predict(std::span<const std::string_view>()).empty());
}

TEST_F(PredictorTest, ABatchIsWhatItsPicturesAre) {
  const Predictor predictor = make(kModel, {.decode_threads = 4});
  std::vector<std::string> files;
  for (int i = 0; i < 33; ++i)
    files.push_back(picture(static_cast<uint8_t>(i * 7), 100, static_cast<uint8_t>(200 - i)));
  const std::vector<std::string_view> views(files.begin(), files.end());
  Timing timing;
  const auto answers = predictor.predict(views, &timing);
  for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(answers[i].prediction, predictor.predict(files[i])) << i;
  EXPECT_GT(timing.preprocess.count(), 0);
  EXPECT_GT(timing.inference.count(), 0);
  EXPECT_GT(timing.postprocess.count(), 0);
}

TEST_F(PredictorTest, ManyThreadsMayAsk) {
  const Predictor predictor = make(kModel, {.decode_threads = 2});
  const std::string blue = picture(1, 2, 250);
  const Prediction expected = predictor.predict(blue);
  const std::vector<std::string_view> files(5, blue);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round)
        for (const Answer& answer : predictor.predict(files)) EXPECT_EQ(answer.prediction, expected);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PredictorTest, TheStepsAreTheWhole) {
  const Predictor predictor = make();
  const std::string file = picture(10, 250, 30);
  Buffer image(predictor.input_elements());
  predictor.preprocess(file, image.view());
  EXPECT_EQ(predictor.rank(predictor.scores(image.view())), predictor.predict(file));
  EXPECT_THAT(predictor.rank(predictor.scores(image.view()), 1).class_ids, ElementsAre(1));
}

TEST_F(PredictorTest, RefusesFloatsThatDoNotFit) {
  const Predictor predictor = make();
  const std::vector<float> odd(8 * 8 * 3 + 1), none, two_scores(2);
  EXPECT_THAT(refusal([&] { predictor.scores(odd); }), AllOf(HasSubstr("193 floats"), HasSubstr("192 (3x8x8)")));
  EXPECT_THROW(predictor.scores(none), UsageError);
  EXPECT_THAT(refusal([&] { predictor.rank(two_scores); }), AllOf(HasSubstr("2 scores"), HasSubstr("3 classes")));
  std::vector<float> image(5);
  EXPECT_THAT(refusal([&] { predictor.preprocess(picture(1, 1, 1), image); }), HasSubstr("room for 5"));
  std::vector<float> room(4);
  EXPECT_THAT(refusal([&] { predictor.scores(std::vector<float>(192), room); }), HasSubstr("room for 4 scores"));
}

TEST_F(PredictorTest, TopkIsWithinTheClasses) {
  EXPECT_EQ(make(kModel, {.topk = 50}).predict(picture(1, 2, 3)).class_ids.size(), 3u);
  EXPECT_EQ(make(kModel, {.topk = 1}).predict(picture(1, 2, 3)).class_ids.size(), 1u);
  EXPECT_THAT(refusal([&] { make(kModel, {.topk = -1}); }), HasSubstr("topk is -1"));
  EXPECT_THAT(refusal([&] { make(kModel, {.decode_threads = -1}); }), HasSubstr("decode_threads is -1"));
  EXPECT_THROW(make().rank(std::vector<float>(3), -1), UsageError);
}

TEST_F(PredictorTest, RefusesLabelsThatAreNotOneForEachClass) {
  bundle::Description two_labels = bundle::parse(kModel, "f");
  two_labels.labels.pop_back();
  EXPECT_THAT(refusal([&] { const Predictor predictor(two_labels, std::make_unique<ChannelMeans>(runs)); }),
              HasSubstr("Means has 2 labels for 3 classes"));
}

TEST_F(PredictorTest, RefusesWhatIsNotAClassifier) {
  bundle::Description parts = bundle::parse(kModel, "f");
  parts.output.shapes = {{-1, 21, 8, 8}};
  EXPECT_THAT(refusal([&] { const Predictor predictor(parts, std::make_unique<ChannelMeans>(runs)); }),
              HasSubstr("Means is not a classifier: inference.yml says Output.shapes"));
}

TEST_F(PredictorTest, EqualScoresGoByClass) {
  const Predictor predictor = make(kModel, {.topk = 3});
  EXPECT_THAT(predictor.rank(std::vector<float>{0.5F, 0.5F, 0.5F}).class_ids, ElementsAre(0, 1, 2));
}

/// A black picture's scores are 0 / 0.
class Quotients : public ChannelMeans {
 public:
  using ChannelMeans::ChannelMeans;
  void run(std::span<const float> images, int64_t batch, std::span<float> scores) override {
    ChannelMeans::run(images, batch, scores);
    for (float& score : scores) score /= score;
  }
};

TEST_F(PredictorTest, ScoresThatAreNotFiniteAreAnErrorOfThatPicture) {
  const Predictor predictor(bundle::parse(kModel, "f"), std::make_unique<Quotients>(runs),
                            {.precision = Precision::fp16});
  const std::string good = picture(90, 100, 110), black = picture(0, 0, 0);
  const std::vector<std::string_view> files = {good, black, "no picture"};
  const auto answers = predictor.predict(files);
  EXPECT_TRUE(answers[0].ok());
  EXPECT_THAT(answers[1].error, AllOf(HasSubstr("NaN as the score of class 0"), HasSubstr("fp32")));
  EXPECT_TRUE(answers[1].prediction.class_ids.empty());
  EXPECT_THAT(answers[2].error, testing::Not(HasSubstr("score")));
  EXPECT_THROW(predictor.predict(black), ScoresError);
  for (const float wrong : {NAN, INFINITY, -INFINITY})
    EXPECT_THROW(make().rank(std::vector<float>{1, 2, wrong}), ScoresError) << wrong;
}

TEST_F(PredictorTest, WithoutOperatorsItReadsTensorsOnly) {
  const Predictor predictor =
      make("Global: {model_name: Raw}\nInput: {shape: [-1, 3, 1, 1]}\nOutput: {class_num: 3}\n");
  EXPECT_THAT(predictor.scores(std::vector<float>{1, 2, 3}), ElementsAre(1, 2, 3));
  EXPECT_TRUE(predictor.rank(std::vector<float>{1, 2, 3}).label_names.empty());
  EXPECT_THAT(refusal([&] { predictor.predict(picture(1, 1, 1)); }),
              AllOf(HasSubstr("Raw"), HasSubstr("not pictures")));
}

TEST_F(PredictorTest, ANetworkOfOneChannelSeesGrey) {
  const Predictor predictor = make(
      "Input: {shape: [-1, 1, 3, 1]}\nOutput: {class_num: 3}\nPreProcess: {transform_ops: [NormalizeImage: {mean: "
      "[0.5], "
      "std: [0.5]}]}\n");
  std::vector<float> image(3);
  predictor.preprocess(picture(102, 102, 102), image);
  EXPECT_THAT(image, Each(testing::FloatNear((0.4F - 0.5F) / 0.5F, 1e-6F)));
  predictor.preprocess(picture(255, 0, 0), image);
  EXPECT_THAT(image, Each(testing::FloatNear((0.299F - 0.5F) / 0.5F, 0.02F)));
}

TEST_F(PredictorTest, SaysWhatItIs) {
  Predictor predictor = make();
  EXPECT_EQ(predictor.model_name(), "Means");
  EXPECT_EQ(predictor.class_num(), 3);
  EXPECT_EQ(predictor.topk(), 2);
  EXPECT_EQ(predictor.engine_name(), "channel means");
  EXPECT_THAT(predictor.labels(), ElementsAre("red", "green", "blue"));
  const Predictor moved = std::move(predictor);
  EXPECT_EQ(moved.input().width, 8);
}

}  // namespace
}  // namespace trireme::infer
