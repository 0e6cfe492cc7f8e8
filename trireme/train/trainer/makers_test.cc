#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/config/document.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/net.h"
#include "trireme/core/test_support.h"
#include "trireme/train/trainer/config_changes.h"
#include "trireme/train/trainer/log_lines.h"
#include "trireme/train/trainer/make_dataset.h"
#include "trireme/train/trainer/make_schedule.h"
#include "trireme/train/trainer/saver.h"

namespace trireme::trainer {
namespace {

using testing::HasSubstr;

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

// With or without lists: `-o Optimizer.lr.learning_rate=...` is the rate that is used.
TEST(MakeSchedule, ALearningRateOfPiecewiseFallsEvery30Epochs) {
  for (const char* lists : {"", "decay_epochs: [1], values: [0.1, 0.01], "})
    for (const bool scaled : {false, true}) {
      const auto lr = rate(fmt::format("{{name: Piecewise, learning_rate: 0.5, {}auto_scale: {}}}", lists, scaled));
      const auto schedule =
          make_schedule(lr, {.epochs = 40, .steps_per_epoch = 5, .batch = {.assumed = 256, .actual = 128}});
      EXPECT_DOUBLE_EQ(schedule(0), scaled ? 0.25 : 0.5) << lists;
      EXPECT_DOUBLE_EQ(schedule(149), scaled ? 0.25 : 0.5) << lists;
      EXPECT_DOUBLE_EQ(schedule(150), scaled ? 0.025 : 0.05) << lists;
    }
}

TEST(MakeSchedule, StepsMayBePartsOfAnEpoch) {
  const auto lr = rate("{name: Step, learning_rate: 1, step_size: 2.4, gamma: 0.5}");
  const auto schedule = make_schedule(lr, {.epochs = 9, .steps_per_epoch = 10});
  EXPECT_DOUBLE_EQ(schedule(23), 1);
  EXPECT_DOUBLE_EQ(schedule(24), 0.5);
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

TEST(MakeSchedule, ARateByOptionIsMeantAsItIs) {
  const auto by_option = [](const std::string& option) {
    const auto root = config::parse_document("Optimizer: {name: SGD, lr: {learning_rate: 0.1}}", "f.yaml", {option});
    return batch_note(config::read_optimizer(root.section("Optimizer")).lr, {.assumed = 256, .actual = 64});
  };
  EXPECT_EQ(by_option("Optimizer.lr.learning_rate=0.4"), std::nullopt);
  EXPECT_EQ(by_option("Optimizer.lr={learning_rate: 0.4}"), std::nullopt);
  EXPECT_NE(by_option("Optimizer.lr.warmup_epoch=0"), std::nullopt);
  EXPECT_NE(by_option("Optimizer.lr={learning_rate: 0.4, auto_scale: True}"), std::nullopt);
}

/// What is logged while a dataset for ten classes is made from these keys.
std::vector<std::string> dataset_log(const std::string& keys) {
  const config::Node root =
      config::parse_document("dataset: {name: Synthetic, " + keys + "}\nsampler: {batch_size: 4}\n", "f.yaml");
  const CaughtLog log;
  make_dataset(config::read_data_loader(root), {.class_num = 10, .image_shape = {1, 4, 4}});
  return log.lines();
}

TEST(MakeDataset, WarnsOfKeysThatTheNamedOneDoesNotHave) {
  EXPECT_THAT(dataset_log("samples: 8, image_shape: [1, 2, 2], seed: 3"), testing::IsEmpty());
  EXPECT_THAT(
      dataset_log("image_root: data, cls_label_path: list.txt, delimiter: ';', relabel: True, mode: test, "
                  "transform_ops: [ToCHWImage]"),
      testing::ElementsAre(HasSubstr("f.yaml:1: dataset.cls_label_path: 'list.txt' is ignored: it is a key of "
                                     "ImageNetDataset, MultiScaleDataset, not of Synthetic"),
                           HasSubstr("dataset.delimiter: "), HasSubstr("dataset.image_root: "),
                           HasSubstr("dataset.mode: 'test' is ignored: it is a key of FashionMnist, Mnist, not"),
                           HasSubstr("dataset.relabel: "), HasSubstr("dataset.transform_ops: ")));
}

TEST(MakeDataset, WarnsOfAnotherNumberOfClasses) {
  const auto sampler = [](int classes) {
    return dataset_log(
        fmt::format("batch_transform_ops: [OpSampler: {{class_num: {}, MixupOperator: {{alpha: 0.2}}}}]", classes));
  };
  EXPECT_THAT(sampler(10), testing::IsEmpty());
  EXPECT_THAT(sampler(7), testing::ElementsAre(HasSubstr("OpSampler.class_num: '7' is ignored: labels have "
                                                         "Arch.class_num = 10 classes")));
}

TEST(LockOutput, KeepsTheSecondOutUntilTheFirstIsGone) {
  const TempDir dir;
  const auto folder = dir.path() / "out" / "LeNet";
  {
    const OwnerLock first = lock_output(folder);
    try {
      lock_output(folder);
      ADD_FAILURE() << "both have it";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(fmt::format("process {} on {}", ::getpid(), host_name())),
                                               HasSubstr(folder.string()), HasSubstr("-o Global.output_dir=")));
    }
  }
  lock_output(folder);
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
  EXPECT_EQ(eval_average_line({.epoch = 3}, "", {{"loss", 0.5}, {"top1", 0.25}}),
            "[Eval][Epoch 3][Avg]loss: 0.50000, top1: 0.25000");
  EXPECT_EQ(eval_average_line({.epoch = 3}, "[EMA]", {{"loss", 0.5}}), "[Eval][Epoch 3][EMA][Avg]loss: 0.50000");
  EXPECT_EQ(train_average_line({0, 2, 9, 10}, 0, {{"loss", 0.5}}), "[Train][Epoch 1/2][Avg]loss: 0.50000");
  EXPECT_EQ(train_average_line({0, 2, 9, 10}, 4, {{"loss", 0.5}}),
            "[Train][Epoch 1/2][Avg of iterations 4-9]loss: 0.50000");
  EXPECT_THAT(train_line({0, 120, 0, 20}, {"PiecewiseDecay", 0.1}, {{"top1", 0.5}}, Pace(), ", max_mem: 1 MB"),
              testing::StartsWith("[Train][Epoch 1/120][Iter: 0/20]lr(PiecewiseDecay): 0.10000000, top1: 0.50000, "
                                  "batch_cost: 0.00000s, reader_cost: 0.00000, ips: 0.00000 samples/s, eta: 0:00:00, "
                                  "max_mem: 1 MB"));
}

}  // namespace
}  // namespace trireme::trainer
