// What trainings record for the launcher: steps, phases and values (watch/report.h).
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <set>

#include "trireme/core/env.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/train/model.h"
#include "trireme/train/step.h"
#include "trireme/train/test_model.h"
#include "trireme/watch/recorder.h"
#include "trireme/watch/ring.h"

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;
using watch::EventKind;
using watch::EventRecord;
using watch::Phase;

// What a case of this program records, run in a child: a process looks for its ring once.
std::unique_ptr<watch::Ring> record_of(const std::string& name) {
  const UniqueFd file = watch::make_ring_file(0);
  const UniqueFd inherited(::dup(file.get()));
  const std::string filter = "--gtest_filter=Watched." + name;
  const pid_t child = ::fork();
  if (child == 0) {
    env::set("TRIREME_WATCH_FD", std::to_string(inherited.get()));
    ::execl("/proc/self/exe", "train_test", filter.c_str(), nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return watch::Ring::map(file.get(), watch::Access::read);
}

std::vector<EventRecord> events_of(const std::string& name) {
  return record_of(name)->events_since(0).events;
}

bool is_child() {
  return env::get("TRIREME_WATCH_FD").has_value();
}

std::vector<int64_t> steps_in(const std::vector<EventRecord>& events) {
  std::vector<int64_t> steps;
  for (const EventRecord& event : events)
    if (event.kind == EventKind::step) steps.push_back(event.step);
  return steps;
}

std::vector<Phase> phases_in(const std::vector<EventRecord>& events, int64_t step) {
  std::vector<Phase> phases;
  for (const EventRecord& event : events)
    if (event.kind == EventKind::phase && event.step == step) phases.push_back(event.phase);
  return phases;
}

std::set<std::string> values_in(const std::vector<EventRecord>& events) {
  std::set<std::string> names;
  for (const EventRecord& event : events)
    if (event.kind == EventKind::value) names.insert(event.name);
  return names;
}

TEST(Watched, ALoopOverDataParallelCountsItsAveragedBackwards) {
  const std::vector<EventRecord> events = events_of("IsALoopOverDataParallel");
  EXPECT_THAT(steps_in(events), ElementsAre(1, 2, 3));
  for (int64_t step = 1; step <= 3; ++step)
    EXPECT_THAT(phases_in(events, step),
                ElementsAre(Phase::forward, Phase::backward, Phase::forward, Phase::backward, Phase::evaluation));
}

TEST(Watched, IsALoopOverDataParallel) {
  if (!is_child()) return;
  const auto world = init_parallel_env();
  DataParallel model(seeded_net(), world);
  const torch::Tensor x = torch::randn({4, 4}, world.device());
  for (int step = 0; step < 3; ++step) {
    {
      const auto local = model.no_sync();
      model(x).sum().backward();
    }
    model(x).sum().backward();
    const torch::NoGradGuard no_grad;
    model(x);
  }
}

TEST(Watched, AStepCountsItsBatches) {
  const std::vector<EventRecord> events = events_of("IsALoopOverAStep");
  EXPECT_THAT(steps_in(events), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(phases_in(events, 1), ElementsAre(Phase::forward, Phase::backward));
  EXPECT_THAT(phases_in(events, 4), ElementsAre(Phase::forward, Phase::backward, Phase::optimizer));
}

TEST(Watched, IsALoopOverAStep) {
  if (!is_child()) return;
  const auto world = init_parallel_env();
  DataParallel model(seeded_net(), world);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  train::Step step(model, sgd, {.loss = torch::nn::CrossEntropyLoss(), .accumulate = 2});
  const torch::Tensor x = torch::randn({4, 4}), y = torch::tensor({0, 1, 2, 0});
  for (int batch = 0; batch < 3; ++batch) step(x, y);
  step([&] { return model(x).sum(); });
}

TEST(Watched, AProgramsOwnNumbersCount) {
  EXPECT_THAT(steps_in(events_of("IsALoopWithNumbersOfItsOwn")), ElementsAre(500, 501));
}

TEST(Watched, IsALoopWithNumbersOfItsOwn) {
  if (!is_child()) return;
  Net net = seeded_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  train::Step step(net, sgd, {.loss = torch::nn::CrossEntropyLoss()});
  for (int64_t number : {500, 501}) {
    watch::set_step(number);
    step(torch::randn({4, 4}), torch::tensor({0, 1, 2, 0}));
  }
}

TEST(Watched, AFitReportsResultsRateAndEvaluations) {
  const std::vector<EventRecord> events = events_of("IsAFit");
  EXPECT_THAT(steps_in(events), ElementsAre(1, 2, 3));
  EXPECT_THAT(phases_in(events, 2), IsSupersetOf({Phase::forward, Phase::backward, Phase::optimizer, Phase::data}));
  EXPECT_EQ(values_in(events), (std::set<std::string>{"loss", "acc", "lr", "eval/loss", "eval/acc"}));
  for (const EventRecord& event : events)
    if (event.kind == EventKind::value && event.name == std::string("lr")) EXPECT_EQ(event.value, 0.25);
}

TEST(Watched, AFitTellsHowFarItGoes) {
  const auto ring = record_of("IsAFitThatEndsWithinAnEpoch");
  EXPECT_EQ(ring->step(), 4);
  EXPECT_EQ(ring->goal().epoch, 2);
  EXPECT_EQ(ring->goal().epochs, 2);
  EXPECT_EQ(ring->goal().last_step, 4);
  EXPECT_EQ(record_of("IsAFit")->goal().last_step, 3);
}

TEST(Watched, IsAFitThatEndsWithinAnEpoch) {
  if (!is_child()) return;
  prepared(seeded_net(), 0.25).fit(points(60), {.batch_size = 20, .verbose = 0, .num_iters = 4});
}

TEST(Watched, IsAFit) {
  if (!is_child()) return;
  prepared(seeded_net(), 0.25).fit(points(60), {.eval = points(20), .batch_size = 20, .verbose = 0});
}

}  // namespace
}  // namespace trireme
