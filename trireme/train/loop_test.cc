#include "trireme/train/loop.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <torch/torch.h>

#include <atomic>
#include <cmath>
#include <functional>

#include "trireme/core/error.h"

namespace trireme::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Two epochs of five batches by default, with a diary.
class Walk : public Training {
 public:
  explicit Walk(int64_t accumulate = 1) : step_(net_, sgd_, {.accumulate = accumulate}) {}

  void run(const std::vector<int>& signals = {}) {
    loop_.emplace(*this, place_, Loop::Parts{step_, ranks_, Meter({"loss"}, {})});
    loop_->catch_signals(signals);
    loop_->run();
  }

  int64_t begin_epoch() override {
    text_ += "[";
    place_.step = 0;
    return place_.steps;
  }
  Meter::Batch train_batch(const BatchOptions& options) override {
    const torch::Tensor loss = step_([&] { return net_->weight.sum() * 0 + loss_; }, options);
    text_ += step_.update() == Update::done ? "u" : ".";
    return {.losses = {loss}, .rows = 1, .step = place_.step};
  }
  void end_batch() override {
    if (at_end_) at_end_();
  }
  void end_epoch() override { text_ += fmt::format("]{}", place_.step); }
  [[noreturn]] void refuse(const BadLoss& bad) const override { throw UsageError("step {} is bad", bad.step); }

  torch::nn::Linear net_{1, 1};
  torch::optim::SGD sgd_{net_->parameters(), 0.1};
  Ranks ranks_;
  Step step_;
  Place place_{.epochs = 2, .steps = 5};
  double loss_ = 1;
  std::function<void()> at_end_;
  std::string text_;
  std::optional<Loop> loop_;
};

TEST(Loop, TheLastBatchOfAnEpochEndsItsGroup) {
  Walk walk(2);
  walk.run();
  EXPECT_EQ(walk.text_, "[.u.uu]5[.u.uu]5");
  EXPECT_EQ(walk.place_.epoch, 2);
  EXPECT_EQ(walk.place_.iteration, 10);
  EXPECT_FALSE(walk.loop_->stopping());
}

TEST(Loop, AStopComesBetweenTwoSteps) {
  Walk walk(2);
  walk.at_end_ = [&] { walk.loop_->agree_to_stop({.stop = walk.place_.step == 2}); };
  walk.run();
  EXPECT_EQ(walk.text_, "[.u.u]4");
  EXPECT_EQ(walk.loop_->signal(), 0);
  EXPECT_EQ(walk.place_.epoch, 1);
}

TEST(Loop, ASaveThatARankRequestsIsKnownUntilTheNextAgreement) {
  Walk walk;
  std::string saves;
  walk.at_end_ = [&] {
    walk.loop_->agree_to_stop({.save = walk.place_.step == 2});
    saves += walk.loop_->saving() ? "s" : ".";
  };
  walk.run();
  EXPECT_EQ(saves, "..s....s..");
  EXPECT_FALSE(walk.loop_->stopping());
}

TEST(Loop, ASignalLeavesThePlaceInItsEpoch) {
  Walk walk;
  walk.at_end_ = [&] {
    if (walk.place_.iteration == 6) ::raise(SIGTERM);
    EXPECT_EQ(walk.loop_->signalled(), walk.place_.iteration == 6);
    walk.loop_->agree_to_stop();
  };
  walk.run({SIGTERM});
  EXPECT_EQ(walk.text_, "[uuuuu]5[uu]2");
  EXPECT_EQ(walk.loop_->signal(), SIGTERM);
  EXPECT_EQ(walk.place_.epoch, 1);
}

TEST(Loop, ASignalAfterTheLastAgreementIsNotLost) {
  static std::atomic<int> received;
  received = 0;
  ::signal(SIGUSR1, [](int) { ++received; });
  Walk walk;
  walk.at_end_ = [&] {
    if (walk.place_.iteration == 9) ::raise(SIGUSR1);
  };
  walk.run({SIGUSR1});
  EXPECT_EQ(received, 1);
  walk.loop_->raise_signal();
  EXPECT_EQ(received, 2);
  ::signal(SIGUSR1, SIG_DFL);
}

TEST(Loop, RefusesALossWhereResultsAreAskedFor) {
  Walk walk;
  walk.at_end_ = [&] {
    if (walk.place_.step == 1) walk.loop_->results();
    walk.loss_ = walk.place_.step == 1 ? std::nan("") : 1;
    if (walk.place_.step == 4) walk.loop_->results();
  };
  EXPECT_THAT([&] { walk.run(); }, ThrowsMessage<UsageError>(HasSubstr("step 2 is bad")));
}

}  // namespace
}  // namespace trireme::train
