// The expected rates were printed by paddle 3.3.1's own schedulers, put together as PaddleClas does.
#include "trireme/optim/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"

namespace trireme::optim {
namespace {

using testing::HasSubstr;

constexpr double kExact = 1e-12;

void expect_rates(const Schedule& schedule, const std::map<int64_t, double>& rates) {
  for (const auto& [step, rate] : rates)
    EXPECT_NEAR(schedule(step), rate, kExact) << schedule.name() << " at step " << step;
}

// --- ways to break it ----------------------------------------------------------------------------------------------

TEST(Schedule, UnknownNameNamesTheNearest) {
  EXPECT_THAT(refusal([] { make_schedule("Cosin", {.epochs = 1, .step_each_epoch = 1}); }),
              HasSubstr("did you mean 'Cosine'?"));
  EXPECT_THAT(refusal([] { make_schedule("ReduceOnPlateau", {.epochs = 1, .step_each_epoch = 1}); }),
              HasSubstr("callback::ReduceLROnPlateau"));
}

TEST(Schedule, RefusesLengthsThatCannotBe) {
  EXPECT_THAT(refusal([] { make_schedule("Cosine", {.learning_rate = 1, .epochs = 3}); }),
              HasSubstr("epochs 3 and step_each_epoch 0"));
  EXPECT_THAT(refusal([] { make_schedule("Step", {.learning_rate = 1, .epochs = 3, .step_each_epoch = 2}); }),
              HasSubstr("step_size"));
  EXPECT_THAT(refusal([] { make_schedule("Constant", {.epochs = 3, .step_each_epoch = 2, .warmup_epoch = -1}); }),
              HasSubstr("warmup_epoch -1"));
  const Schedule schedule = make_schedule("Constant", {.learning_rate = 1, .epochs = 3, .step_each_epoch = 2});
  EXPECT_THAT(refusal([&] { schedule(-1); }), HasSubstr("step -1"));
}

TEST(Schedule, RefusesValuesThatDoNotFit) {
  ScheduleOptions options{.epochs = 9, .step_each_epoch = 2, .decay_epochs = {3, 6}, .values = {1, 2}};
  EXPECT_THAT(refusal([&] { make_schedule("Piecewise", options); }), HasSubstr("2 values for 2 decay_epochs"));
  options.decay_epochs = {6, 3};
  EXPECT_THAT(refusal([&] { make_schedule("Piecewise", options); }), HasSubstr("6 comes before 3"));
  options.gamma = 1.5;
  EXPECT_THAT(refusal([&] { make_schedule("MultiStep", options); }), HasSubstr("gamma 1.5"));
}

TEST(Schedule, AWarmupLongerThanTheTrainingIsCut) {
  const Schedule schedule =
      make_schedule("Cosine", {.learning_rate = 1, .epochs = 2, .step_each_epoch = 5, .warmup_epoch = 9});
  expect_rates(schedule, {{0, 0}, {5, 0.5}, {9, 0.9}, {10, 1}, {11, 1}});
}

// --- Paddle's values -----------------------------------------------------------------------------------------------

TEST(Schedule, Constant) {
  const ScheduleOptions options{.learning_rate = 0.1, .epochs = 3, .step_each_epoch = 4, .warmup_epoch = 0.5};
  expect_rates(make_schedule("ConstLR", options), {{0, 0}, {1, 0.05}, {2, 0.1}, {11, 0.1}});
}

TEST(Schedule, Cosine) {
  expect_rates(make_schedule("Cosine", {.learning_rate = 0.8, .epochs = 10, .step_each_epoch = 7, .warmup_epoch = 2}),
               {{0, 0.0},
                {1, 0.05714285714285715},
                {13, 0.7428571428571429},
                {14, 0.8},
                {15, 0.7993707260071267},
                {40, 0.44478579044132305},
                {69, 0.0006292739928733583}});
  expect_rates(make_schedule("Cosine", {.learning_rate = 0.8, .epochs = 10, .step_each_epoch = 7, .eta_min = 0.01}),
               {{0, 0.8}, {1, 0.7996022612838194}, {35, 0.4050000000000002}, {69, 0.010397738716180738}});
}

TEST(Schedule, CosineStaysAtItsEnd) {
  const Schedule schedule =
      make_schedule("Cosine", {.learning_rate = 0.8, .epochs = 10, .step_each_epoch = 7, .eta_min = 0.01});
  expect_rates(schedule, {{70, 0.01}, {80, 0.01}, {140, 0.01}});
}

TEST(Schedule, CosineByEpoch) {
  const Schedule schedule = make_schedule(
      "Cosine", {.learning_rate = 0.8, .epochs = 10, .step_each_epoch = 7, .warmup_epoch = 2, .by_epoch = true});
  const std::map<int64_t, double> by_epoch = {
      {0, 0.0}, {1, 0.4}, {2, 0.8}, {3, 0.7695518130045147}, {9, 0.030448186995485307}};
  for (const auto& [epoch, rate] : by_epoch)
    expect_rates(schedule, {{epoch * 7, rate}, {epoch * 7 + 3, rate}, {epoch * 7 + 6, rate}});
}

TEST(Schedule, LinearAndPolynomial) {
  expect_rates(make_schedule("Linear", {.learning_rate = 0.4,
                                        .epochs = 10,
                                        .step_each_epoch = 7,
                                        .warmup_epoch = 1,
                                        .warmup_start_lr = 0.1,
                                        .end_lr = 0.01}),
               {{0, 0.1},
                {3, 0.2285714285714286},
                {7, 0.4},
                {8, 0.39380952380952383},
                {40, 0.19571428571428573},
                {69, 0.016190476190476213}});
  expect_rates(
      make_schedule(
          "Polynomial",
          {.learning_rate = 0.4, .epochs = 10, .step_each_epoch = 7, .end_lr = 0.01, .power = 2, .cycle = true}),
      {{0, 0.4},
       {30, 0.1373469387755102},
       {69, 0.010079591836734694},
       {70, 0.01},
       {71, 0.1047341836734694},
       {100, 0.04183673469387755}});
  const Schedule once =
      make_schedule("Poly", {.learning_rate = 0.4, .epochs = 10, .step_each_epoch = 7, .end_lr = 0.01});
  expect_rates(once, {{70, 0.01}, {1000, 0.01}});
}

TEST(Schedule, StepAndMultiStep) {
  expect_rates(
      make_schedule(
          "Step",
          {.learning_rate = 0.1, .epochs = 10, .step_each_epoch = 7, .warmup_epoch = 1, .step_size = 3, .gamma = 0.5}),
      {{6, 0.08571428571428573}, {7, 0.1}, {27, 0.1}, {28, 0.05}, {49, 0.025}, {69, 0.025}});
  expect_rates(
      make_schedule("MultiStepDecay", {.learning_rate = 0.1, .epochs = 10, .step_each_epoch = 7, .milestones = {3, 6}}),
      {{20, 0.1}, {21, 0.01}, {41, 0.01}, {42, 0.001}, {69, 0.001}});
}

TEST(Schedule, StepsMayBePartsOfAnEpoch) {
  ScheduleOptions options{.learning_rate = 0.1, .epochs = 10, .step_each_epoch = 10, .step_size = 2.4, .gamma = 0.97};
  expect_rates(make_schedule("Step", options), {{23, 0.1}, {24, 0.097}, {47, 0.097}, {48, 0.09409}});
  options.step_each_epoch = 7;  // 16.8 steps, of which 16 count
  expect_rates(make_schedule("Step", options), {{15, 0.1}, {16, 0.097}, {31, 0.097}, {32, 0.09409}});
}

TEST(Schedule, PiecewiseCountsItsEpochsFromTheEndOfTheWarmup) {
  expect_rates(make_schedule("Piecewise", {.epochs = 10,
                                           .step_each_epoch = 7,
                                           .warmup_epoch = 2,
                                           .decay_epochs = {3, 6},
                                           .values = {0.1, 0.01, 0.001}}),
               {{0, 0.0}, {7, 0.05}, {14, 0.1}, {34, 0.1}, {35, 0.01}, {55, 0.01}, {56, 0.001}, {69, 0.001}});
}

TEST(Schedule, PiecewiseWithoutValuesLosesATenthEvery30Epochs) {
  const Schedule schedule = make_schedule("Piecewise", {.learning_rate = 0.1, .epochs = 120, .step_each_epoch = 10});
  expect_rates(schedule, {{0, 0.1}, {299, 0.1}, {300, 0.01}, {600, 0.001}, {900, 0.0001}, {1199, 0.0001}});
  expect_rates(make_schedule("Piecewise", {.learning_rate = 0.1, .epochs = 5, .step_each_epoch = 10}), {{49, 0.1}});
}

TEST(Schedule, WarmupStepsAreRoundedAsPythonDoes) {
  const ScheduleOptions options{.learning_rate = 1, .epochs = 9, .step_each_epoch = 5, .warmup_epoch = 0.5};
  expect_rates(make_schedule("Constant", options), {{1, 0.5}, {2, 1}});  // round(2.5) = 2
}

}  // namespace
}  // namespace trireme::optim
