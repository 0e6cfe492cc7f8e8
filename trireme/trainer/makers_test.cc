#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/config/document.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/net.h"
#include "trireme/trainer/config_changes.h"
#include "trireme/trainer/log_lines.h"
#include "trireme/trainer/make_schedule.h"
#include "trireme/trainer/make_transforms.h"
#include "trireme/trainer/output_lock.h"

namespace trireme::trainer {
namespace {

using testing::HasSubstr;

std::vector<image::Operator> operators(const std::string& text) {
  const config::Node list = config::parse_document(text, "f.yaml").at("ops");
  return make_operators(config::read_named_list(list), list);
}

std::string refusal(const std::string& text) {
  try {
    const config::Node list = config::parse_document(text, "f.yaml").at("ops");
    make_transforms(config::read_named_list(list), list);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(MakeTransforms, ReadsTheKeysOfPaddleClas) {
  const auto ops = operators(R"(
ops:
  - DecodeImage: {to_rgb: False, channel_first: False}
  - RandCropImage: {size: [160, 96], scale: [0.2, 1.0], interpolation: bicubic, backend: pil}
  - TimmAutoAugment: {config_str: rand-m7-mstd0.5-inc1, interpolation: bicubic, img_size: 224}
  - NormalizeImage: {scale: 1.0/255.0, mean: [0.1, 0.2, 0.3], std: [1, 2, 3], order: ''}
  - RandomErasing: {EPSILON: 0.25, sh: 1.0/3.0, attempt: 10, use_log_aspect: True, mode: pixel}
  - ToCHWImage:
)");
  ASSERT_EQ(ops.size(), 6u);
  EXPECT_FALSE(std::get<image::DecodeImage>(ops[0]).to_rgb);
  const auto& crop = std::get<image::RandCropImage>(ops[1]);
  EXPECT_EQ(crop.size, (image::Size{160, 96}));
  EXPECT_EQ(crop.scale[0], 0.2);
  EXPECT_EQ(crop.method, (image::ResizeMethod{image::Interpolation::bicubic, image::Backend::pil}));
  EXPECT_EQ(std::get<image::TimmAutoAugment>(ops[2]).config_str, "rand-m7-mstd0.5-inc1");
  EXPECT_FLOAT_EQ(std::get<image::NormalizeImage>(ops[3]).std[2], 3);
  const auto& erasing = std::get<image::RandomErasing>(ops[4]);
  EXPECT_DOUBLE_EQ(erasing.sh, 1.0 / 3.0);
  EXPECT_EQ(erasing.mode, image::ErasePixels::pixel);
  EXPECT_EQ(erasing.attempt, 10);
}

TEST(MakeTransforms, RefusesWithThePlace) {
  EXPECT_THAT(refusal("ops:\n  - DecodeImage:\n  - RandCropImag: {size: 3}\n"),
              testing::AllOf(HasSubstr("f.yaml:3"), HasSubstr("did you mean 'RandCropImage'")));
  EXPECT_THAT(refusal("ops:\n  - RandCropImage: {size: 3, interpolation: cubicc}\n"),
              testing::AllOf(HasSubstr("f.yaml:2"), HasSubstr("cubicc")));
  EXPECT_THAT(refusal("ops:\n  - RandCropImage: {scale: [1, 2]}\n"), HasSubstr("size"));
  EXPECT_THAT(refusal("ops:\n  - NormalizeImage: {mean: [1, 2]}\n"), HasSubstr("expected 3 numbers, got 2"));
  EXPECT_THAT(refusal("ops:\n  - RandCropImage: {size: 3}\n"), HasSubstr("no NormalizeImage"));
}

config::LearningRate rate(const std::string& text) {
  const config::Node root = config::parse_document("Optimizer: {name: SGD, lr: " + text + "}", "f.yaml");
  return config::read_optimizer(root.section("Optimizer")).lr;
}

TEST(MakeSchedule, ScalesAllRatesWithTheGlobalBatch) {
  const auto lr = rate("{name: Piecewise, values: [0.1, 0.01], decay_epochs: [1], auto_scale: True}");
  const auto schedule =
      make_schedule(lr, {.epochs = 2, .steps_per_epoch = 5, .batch = {.assumed = 256, .actual = 128}});
  EXPECT_DOUBLE_EQ(schedule(0), 0.05);
  EXPECT_DOUBLE_EQ(schedule(5), 0.005);
}

TEST(MakeSchedule, TellsOfAnotherBatch) {
  const auto lr = rate("{name: Cosine, learning_rate: 0.4, warmup_epoch: 1}");
  EXPECT_EQ(batch_note(lr, {.assumed = 256, .actual = 256}), std::nullopt);
  EXPECT_THAT(*batch_note(lr, {.assumed = 256, .actual = 64}),
              testing::AllOf(HasSubstr("is 64"), HasSubstr("for 256"), HasSubstr("0.1"), HasSubstr("auto_scale=True")));
  EXPECT_EQ(schedule_title(lr), "LinearWarmup");
  EXPECT_EQ(assumed_ranks("AdamW"), 8);
  EXPECT_EQ(assumed_ranks("Momentum"), 4);
}

TEST(OutputLock, KeepsTheSecondOutUntilTheFirstIsGone) {
  const TempDir dir;
  const auto folder = dir.path() / "out" / "LeNet";
  {
    const OutputLock first(folder);
    try {
      const OutputLock second(folder);
      ADD_FAILURE() << "both have it";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(fmt::format("process {} on {}", ::getpid(), host_name())),
                                               HasSubstr(folder.string()), HasSubstr("-o Global.output_dir=")));
    }
  }
  const OutputLock third(folder);
}

TEST(ConfigChanges, TellsKeysAndBothValues) {
  const std::string before = "Global: {epochs: 1, seed: 3, output_dir: a}\nLoss: [CELoss: {weight: 1.0}]\n";
  const std::string now =
      "Global: {epochs: 2, output_dir: b, device: cpu}\nLoss: [CELoss: {weight: 0.5}]\nEMA: {decay: 1}";
  EXPECT_THAT(config_changes(before, now),
              testing::ElementsAre("EMA.decay: nothing, now 1", "Global.seed: 3, now nothing",
                                   "Loss.0.CELoss.weight: 1.0, now 0.5"));
  EXPECT_THAT(config_changes(before, before), testing::IsEmpty());
  EXPECT_THAT(config_changes("", now), testing::IsEmpty());
  EXPECT_THAT(config_changes("{{{ of another program", now), testing::IsEmpty());
}

TEST(LogLines, TimesAndShape) {
  EXPECT_EQ(eta_text(754.9), "0:12:34");
  EXPECT_EQ(eta_text(86400 + 3661), "1 day, 1:01:01");
  EXPECT_EQ(eta_text(3 * 86400), "3 days, 0:00:00");
  Pace pace;
  EXPECT_EQ(pace.batch_cost(), 0);
  pace.read();
  pace.done(64);
  EXPECT_GE(pace.batch_cost(), pace.reader_cost());
  EXPECT_EQ(eval_average_line({.epoch = 3}, {{"loss", 0.5}, {"top1", 0.25}}),
            "[Eval][Epoch 3][Avg]loss: 0.50000, top1: 0.25000");
  EXPECT_THAT(train_line({1, 120, 0, 20}, {"PiecewiseDecay", 0.1}, {{"top1", 0.5}}, Pace(), ", max_mem: 1 MB"),
              testing::StartsWith("[Train][Epoch 1/120][Iter: 0/20]lr(PiecewiseDecay): 0.10000000, top1: 0.50000, "
                                  "batch_cost: 0.00000s, reader_cost: 0.00000, ips: 0.00000 samples/s, eta: 0:00:00, "
                                  "max_mem: 1 MB"));
}

}  // namespace
}  // namespace trireme::trainer
