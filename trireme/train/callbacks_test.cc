#include "trireme/train/callbacks.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/train/model.h"

namespace trireme {
namespace {

using callback::Better;
using callback::EarlyStopping;
using callback::ReduceLROnPlateau;
using callback::Watch;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Results, NamesWhatThereIs) {
  const Results results{{"loss", 1}, {"acc", 2}};
  EXPECT_EQ(results.at("acc"), 2);
  EXPECT_THAT([&] { results.at("ac"); },
              ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("loss, acc"), HasSubstr("mean 'acc'"))));
}

TEST(Watch, LessIsBetterExceptForWhatIsKnownToBeGood) {
  Watch loss("loss", Better::automatic, 0), accuracy("val_acc_top1", Better::automatic, 0);
  for (Watch* watch : {&loss, &accuracy}) EXPECT_TRUE(watch->improved({{"loss", 1}, {"val_acc_top1", 0.5}}));
  EXPECT_TRUE(loss.improved({{"loss", 0.9}}));
  EXPECT_FALSE(loss.improved({{"loss", 1.1}}));
  EXPECT_TRUE(accuracy.improved({{"val_acc_top1", 0.6}}));
  EXPECT_FALSE(accuracy.improved({{"val_acc_top1", 0.4}}));
  EXPECT_EQ(loss.best(), 0.9);
}

TEST(Watch, SmallGainsAreNone) {
  Watch watch("loss", Better::less, 0.1);
  EXPECT_TRUE(watch.improved({{"loss", 1}}));
  EXPECT_FALSE(watch.improved({{"loss", 0.95}}));
  EXPECT_TRUE(watch.improved({{"loss", 0.85}}));
}

TEST(Watch, HasABaselineToBeat) {
  Watch watch("acc", Better::more, 0, 0.8);
  EXPECT_FALSE(watch.improved({{"acc", 0.7}}));
  EXPECT_TRUE(watch.improved({{"acc", 0.9}}));
}

TEST(Watch, WhatIsNotFiniteIsNeverBetter) {
  for (const Better better : {Better::less, Better::more}) {
    Watch watch("loss", better, 0);
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) EXPECT_FALSE(watch.improved({{"loss", value}}));
    EXPECT_TRUE(watch.improved({{"loss", 5}}));
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) EXPECT_FALSE(watch.improved({{"loss", value}}));
  }
}

class Training : public testing::Test {
 protected:
  Training() {
    model_.prepare({.optimizer = [](auto parameters) { return torch::optim::SGD(parameters, 1.0); },
                    .loss = torch::nn::MSELoss()});
    run_.has_eval = true;
  }
  bool stops(Callback& callback, double loss) {
    run_.logs = {{"loss", loss}};
    callback.on_epoch_end(run_);  // counts for nothing while evaluations come
    callback.on_eval_end(run_);
    ++run_.epoch;
    return run_.stop;
  }

  Model model_{torch::nn::Linear(1, 1)};
  trireme::Run run_{model_, {}};
  TempDir folder_;
};

TEST_F(Training, StopsAfterItsPatience) {
  EarlyStopping stopping({.patience = 2});
  EXPECT_FALSE(stops(stopping, 1.0));
  EXPECT_FALSE(stops(stopping, 1.1));
  EXPECT_FALSE(stops(stopping, 0.9));  // counts from 0 again
  EXPECT_FALSE(stops(stopping, 0.9));
  EXPECT_TRUE(stops(stopping, 0.95));
  EXPECT_EQ(stopping.stopped_epoch(), 4);
}

TEST_F(Training, StopsAtOnceWithoutPatience) {
  EarlyStopping stopping;
  EXPECT_FALSE(stops(stopping, 1.0));
  EXPECT_TRUE(stops(stopping, 1.0));
}

TEST_F(Training, LooksAtTrainingWithoutAnEvaluation) {
  run_.has_eval = false;
  EarlyStopping stopping;
  run_.logs = {{"loss", 1}};
  stopping.on_epoch_end(run_);
  stopping.on_epoch_end(run_);
  EXPECT_TRUE(run_.stop);
}

TEST_F(Training, SavesTheBest) {
  run_.save_dir = folder_.path() / "out";
  EarlyStopping stopping({.patience = 5});
  stops(stopping, 1.0);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "out/best_model.safetensors"));
  std::filesystem::remove(folder_.path() / "out/best_model.safetensors");
  stops(stopping, 2.0);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "out/best_model.safetensors"));
}

TEST_F(Training, AnUnknownResultIsAnError) {
  EarlyStopping stopping({.monitor = "accuracy"});
  EXPECT_THAT([&] { stops(stopping, 1); }, ThrowsMessage<UsageError>(HasSubstr("no result 'accuracy'")));
}

TEST_F(Training, LowersTheRateOnAPlateau) {
  ReduceLROnPlateau plateau({.factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.2});
  const std::vector<std::pair<double, double>> steps = {
      {1.0, 1.0},   // the first is the best
      {1.0, 1.0},   // one without a gain
      {1.0, 0.5},   // two: lowered
      {1.0, 0.5},   // has cooled down: one
      {1.0, 0.25},  // two
      {1.0, 0.25}, {1.0, 0.2}, {1.0, 0.2}, {1.0, 0.2},
  };
  for (const auto& [loss, rate] : steps) {
    stops(plateau, loss);
    EXPECT_DOUBLE_EQ(model_.learning_rate(), rate);
  }
  EXPECT_THAT([] { ReduceLROnPlateau({.factor = 1}); }, ThrowsMessage<UsageError>(HasSubstr("factor is 1")));
}

TEST_F(Training, CoolsDownForSoLongAsPaddle) {
  ReduceLROnPlateau plateau({.factor = 0.5, .patience = 1, .cooldown = 3});
  for (const double rate : {1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125}) {
    stops(plateau, 1.0);
    EXPECT_DOUBLE_EQ(model_.learning_rate(), rate);
  }
}

TEST_F(Training, CallbacksForgetTheFitBefore) {
  EarlyStopping stopping({.patience = 2});
  ReduceLROnPlateau plateau({.factor = 0.5, .patience = 2});
  for (int fit = 0; fit < 3; ++fit) {
    stopping.on_train_begin(run_);
    plateau.on_train_begin(run_);
    for (int i = 0; i < 2; ++i) {  // worse than in the fit before, but the first is the best of this one
      EXPECT_FALSE(stops(stopping, 1.0 + fit));
      stops(plateau, 1.0 + fit);
    }
  }
  EXPECT_DOUBLE_EQ(model_.learning_rate(), 1.0);
}

TEST_F(Training, ADamagedStateIsShown) {
  EarlyStopping stopping;
  stopping.load_state("EarlyStopping 2 0 0x1.8p-1");
  EXPECT_EQ(stopping.state_text(), "EarlyStopping 2 0 0x1.8p-1");
  stopping.load_state("EarlyStopping 0 1 none");
  EXPECT_EQ(stopping.state_text(), "EarlyStopping 0 1 none");
  for (const char* text : {"", "EarlyStopping", "EarlyStopping x 0 none", "EarlyStopping 1 0 some", "Other 1 0 none"})
    EXPECT_THAT([&] { stopping.load_state(text); },
                ThrowsMessage<UsageError>(HasSubstr(fmt::format("has '{}'", text))));
}

TEST_F(Training, FollowsASchedule) {
  callback::LRScheduler by_step([](int64_t step) { return 0.5 + static_cast<double>(step); });
  run_.iteration = 3;
  by_step.on_epoch_begin(run_);
  EXPECT_EQ(model_.learning_rate(), 1.0);
  by_step.on_train_batch_begin(run_);
  EXPECT_EQ(model_.learning_rate(), 3.5);
  callback::LRScheduler by_epoch([](int64_t epoch) { return 0.1 * static_cast<double>(epoch); }, {.by_step = false});
  run_.epoch = 2;
  by_epoch.on_train_batch_begin(run_);
  EXPECT_EQ(model_.learning_rate(), 3.5);
  by_epoch.on_epoch_begin(run_);
  EXPECT_EQ(model_.learning_rate(), 0.2);
}

TEST_F(Training, WritesForTensorBoard) {
  callback::TensorBoard board(folder_.path() / "board");
  board.on_train_begin(run_);
  run_.logged = true;
  run_.logs = {{"loss", 0.5}};
  board.on_train_batch_end(run_);
  board.on_eval_end(run_);
  board.on_train_end(run_);
  std::string content;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "board"))
    content += read_file(entry.path()).value_or("");
  for (const char* tag : {"train/loss", "eval/loss", "train/learning_rate"}) EXPECT_THAT(content, HasSubstr(tag));
}

TEST_F(Training, SavesEveryFewEpochsAndInTheEnd) {
  callback::ModelCheckpoint checkpoint({.save_freq = 2, .save_dir = folder_.path()});
  for (run_.epoch = 0; run_.epoch < 4; ++run_.epoch) checkpoint.on_epoch_end(run_);
  checkpoint.on_train_end(run_);
  for (const char* name : {"0", "2", "final"})
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / (std::string(name) + ".safetensors"))) << name;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "1.safetensors"));
}

}  // namespace
}  // namespace trireme
