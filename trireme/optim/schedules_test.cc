// The expected rates were printed by paddle 3.3.1's own schedulers, put together as PaddleClas does.
#include "trireme/optim/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/core/error.h"
#include "trireme/optim/plateau.h"

namespace trireme::optim {
namespace {

using testing::HasSubstr;

constexpr double kExact = 1e-12;

void expect_rates(const Schedule& schedule, const std::map<int64_t, double>& rates) {
  for (const auto& [step, rate] : rates)
    EXPECT_NEAR(schedule(step), rate, kExact) << schedule.name() << " at step " << step;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

// --- ways to break it ----------------------------------------------------------------------------------------------

TEST(Schedule, UnknownNameNamesTheNearest) {
  EXPECT_THAT(error_of([] { make_schedule("Cosin", {.epochs = 1, .step_each_epoch = 1}); }),
              HasSubstr("did you mean 'Cosine'?"));
  EXPECT_THAT(error_of([] { make_schedule("ReduceOnPlateau", {.epochs = 1, .step_each_epoch = 1}); }),
              HasSubstr("ReduceLrOnPlateau"));
}

TEST(Schedule, RefusesLengthsThatCannotBe) {
  EXPECT_THAT(error_of([] { make_schedule("Cosine", {.learning_rate = 1, .epochs = 3}); }),
              HasSubstr("epochs 3 and step_each_epoch 0"));
  EXPECT_THAT(error_of([] { make_schedule("Step", {.learning_rate = 1, .epochs = 3, .step_each_epoch = 2}); }),
              HasSubstr("step_size"));
  EXPECT_THAT(error_of([] { make_schedule("Constant", {.epochs = 3, .step_each_epoch = 2, .warmup_epoch = -1}); }),
              HasSubstr("warmup_epoch -1"));
  const Schedule schedule = make_schedule("Constant", {.learning_rate = 1, .epochs = 3, .step_each_epoch = 2});
  EXPECT_THAT(error_of([&] { schedule(-1); }), HasSubstr("step -1"));
}

TEST(Schedule, RefusesValuesThatDoNotFit) {
  ScheduleOptions options{.epochs = 9, .step_each_epoch = 2, .decay_epochs = {3, 6}, .values = {1, 2}};
  EXPECT_THAT(error_of([&] { make_schedule("Piecewise", options); }), HasSubstr("2 values for 2 decay_epochs"));
  options.decay_epochs = {6, 3};
  EXPECT_THAT(error_of([&] { make_schedule("Piecewise", options); }), HasSubstr("6 comes before 3"));
  options.gamma = 1.5;
  EXPECT_THAT(error_of([&] { make_schedule("MultiStep", options); }), HasSubstr("gamma 1.5"));
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

// --- state ---------------------------------------------------------------------------------------------------------

TEST(ScheduleCursor, GoesOnFromItsText) {
  const ScheduleOptions options{.learning_rate = 0.8, .epochs = 10, .step_each_epoch = 7, .warmup_epoch = 2};
  ScheduleCursor cursor(make_schedule("Cosine", options));
  for (int i = 0; i < 40; ++i) cursor.advance();
  EXPECT_EQ(cursor.state_text(), "schedule 1 name=Cosine step=40");
  ScheduleCursor other(make_schedule("Cosine", options));
  other.load_state(cursor.state_text());
  EXPECT_NEAR(other.lr(), 0.44478579044132305, kExact);
}

TEST(ScheduleCursor, RefusesWhatIsNotItsState) {
  ScheduleCursor cursor(make_schedule("Cosine", {.learning_rate = 1, .epochs = 1, .step_each_epoch = 1}));
  EXPECT_THAT(error_of([&] { cursor.load_state("schedule 1 name=Step step=3"); }),
              HasSubstr("'Step', this is 'Cosine'"));
  for (const char* text : {"", "schedule", "schedule 1 name=Cosine", "schedule 1 name=Cosine step=-3",
                           "schedule 1 step=3 name=Cosine", "plateau 1 lr=1", "schedule 1 name=Cosine step=3x"})
    EXPECT_NE(error_of([&] { cursor.load_state(text); }), "no error") << text;
  EXPECT_EQ(cursor.step(), 0);
}

TEST(Plateau, FallsAsPaddlesDoes) {
  ReduceLrOnPlateau plateau({.learning_rate = 1,
                             .mode = ReduceLrOnPlateau::Mode::max,
                             .factor = 0.5,
                             .patience = 1,
                             .threshold = 0.01,
                             .cooldown = 1,
                             .min_lr = 0.2});
  const std::vector<double> metrics = {0.5,  0.502, 0.5,  0.6, 0.55, 0.55, 0.55, 0.55, 0.55,
                                       0.55, 0.55,  0.55, 0.7, 0.1,  0.1,  0.1,  0.1,  0.1};
  const std::vector<double> rates = {1,   1,   0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25,
                                     0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2,  0.2,  0.2};
  for (size_t i = 0; i < metrics.size(); ++i) {
    ReduceLrOnPlateau loaded({.learning_rate = 9,
                              .mode = ReduceLrOnPlateau::Mode::max,
                              .factor = 0.5,
                              .patience = 1,
                              .threshold = 0.01,
                              .cooldown = 1,
                              .min_lr = 0.2});
    loaded.load_state(plateau.state_text());
    EXPECT_DOUBLE_EQ(plateau.observe(metrics[i]), rates[i]) << "observation " << i;
    EXPECT_EQ(loaded.observe(metrics[i]), plateau.lr()) << "loaded before observation " << i;
  }
}

TEST(Plateau, AbsoluteThresholdAndMinimum) {
  ReduceLrOnPlateau plateau(
      {.learning_rate = 1, .patience = 0, .threshold = 0.5, .threshold_mode = ReduceLrOnPlateau::Threshold::absolute});
  EXPECT_EQ(plateau.observe(10), 1);
  EXPECT_EQ(plateau.observe(9.4), 1);
  EXPECT_DOUBLE_EQ(plateau.observe(9.1), 0.1);  // not half a point better
}

TEST(Plateau, RefusesBrokenTextAndFactors) {
  EXPECT_THAT(error_of([] { ReduceLrOnPlateau({.factor = 1}); }), HasSubstr("factor 1"));
  ReduceLrOnPlateau plateau({.learning_rate = 0.5});
  EXPECT_THAT(error_of([&] { plateau.load_state("plateau 1 lr=0.1 bad=x cooldown=0 best=1"); }), HasSubstr("bad=x"));
  EXPECT_EQ(plateau.lr(), 0.5);
}

}  // namespace
}  // namespace trireme::optim
