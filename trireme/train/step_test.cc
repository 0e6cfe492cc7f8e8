#include "trireme/train/step.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/core/test_variable.h"
#include "trireme/io/checkpoint/checkpoint.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/optimizers.h"

namespace trireme::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;

const Loss kLoss = torch::nn::CrossEntropyLoss();

torch::nn::Linear linear() {
  torch::manual_seed(5);
  return torch::nn::Linear(4, 3);
}

struct Samples {
  Tensor x, y;
  Samples rows(int64_t first, int64_t count) const { return {x.narrow(0, first, count), y.narrow(0, first, count)}; }
};

Samples samples(int64_t count) {
  torch::manual_seed(3);
  const Tensor x = torch::randn({count, 4});
  return {x, x.narrow(1, 0, 3).argmax(1)};
}

Tensor weights(const torch::nn::Linear& net) {
  return torch::cat({net->weight.detach().reshape({-1}), net->bias.detach()}).clone();
}

optim::Momentum momentum(const torch::nn::Linear& net) {
  return {net->parameters(), {.lr = 0.1}};
}

/// Weights after batches of these sizes in a row; the last one ends its group.
Tensor trained(const std::vector<int64_t>& sizes, StepOptions options) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  options.loss = kLoss;
  Step step(net, optimizer, options);
  const Samples all = samples(100);
  int64_t first = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Samples batch = all.rows(first, sizes[i]);
    first += sizes[i];
    step(batch.x, batch.y, i + 1 == sizes.size() ? BatchOptions{.update = true} : BatchOptions{});
  }
  return weights(net);
}

TEST(Step, IsTheLoopWrittenByHand) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  for (int64_t i = 0; i < 3; ++i) {
    const Samples batch = samples(100).rows(10 * i, 10);
    torch::cross_entropy_loss(net(batch.x), batch.y).backward();
    optim::clip_grad_norm(net->parameters(), 0.1);
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_TRUE(trained({10, 10, 10}, {.clip_norm = 0.1}).equal(weights(net)));
}

TEST(Step, UnevenBatchesOfAGroupAreOneLargeBatch) {
  const Tensor large = trained({32, 27, 5}, {});
  EXPECT_TRUE(trained({8, 8, 8, 8, 8, 8, 8, 3, 5}, {.accumulate = 4}).allclose(large, 1e-6, 1e-7));
  EXPECT_TRUE(trained({1, 10, 1, 20, 20, 1, 1, 5, 3, 2}, {.accumulate = 4}).allclose(large, 1e-6, 1e-7));
  EXPECT_TRUE(trained({16, 16, 20, 7, 5}, {.clip_norm = 1e9, .accumulate = 2}).allclose(large, 1e-6, 1e-7));
  EXPECT_FALSE(trained({32, 27}, {}).allclose(large, 1e-4, 1e-5));
}

TEST(Step, AFunctionGivesAnyLoss) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  Step step(net, optimizer, {.accumulate = 2});
  const Samples all = samples(100);
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 10}, {10, 30}}) {
    const Samples batch = all.rows(first, count);
    EXPECT_EQ(step.update(), Update::none);
    const Tensor loss =
        step([&] { return torch::cross_entropy_loss(net(batch.x), batch.y); }, {.samples = batch.x.size(0)});
    EXPECT_FALSE(loss.requires_grad());
  }
  EXPECT_EQ(step.update(), Update::done);
  EXPECT_TRUE(weights(net).allclose(trained({40}, {}), 1e-6, 1e-7));
}

TEST(Step, TheCallerMayDecideWhenToUpdate) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  Step step(net, optimizer, {.loss = kLoss});
  const Tensor before = weights(net);
  const Samples all = samples(100);
  step(all.rows(0, 10).x, all.rows(0, 10).y, {.update = false});
  EXPECT_EQ(step.pending(), 1);
  EXPECT_TRUE(weights(net).equal(before));
  step(all.rows(10, 20).x, all.rows(10, 20).y, {.update = true});
  EXPECT_EQ(step.pending(), 0);
  EXPECT_TRUE(weights(net).allclose(trained({30}, {}), 1e-6, 1e-7));
  EXPECT_EQ(step.output().sizes(), torch::IntArrayRef({20, 3}));
}

TEST(Step, AGroupStartsWithoutTheGradientsOfAnotherBackward) {
  const Samples batch = samples(8);
  std::vector<Tensor> results;
  for (const bool with_leftovers : {false, true}) {
    torch::nn::Linear net = linear();
    optim::Momentum optimizer = momentum(net);
    Step step(net, optimizer, {.loss = kLoss, .accumulate = 2});
    for (int i = 0; i < 4; ++i) {
      if (with_leftovers && i % 2 == 0) net(batch.x).sum().backward();
      step(batch.x, batch.y);
    }
    results.push_back(weights(net));
  }
  EXPECT_TRUE(results[0].equal(results[1]));
}

TEST(Step, AveragesTheWeightsOfItsFirstCall) {
  torch::nn::Linear net = linear();
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  Step step(net, optimizer, {.loss = kLoss, .ema_decay = 0.999});
  {
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : net->parameters()) parameter.fill_(0.5);
  }
  EXPECT_TRUE(step.ema()->state()[0].second.eq(0.5).all().item<bool>()) << "before the first step";
  const Samples batch = samples(8);
  step(batch.x, batch.y);
  for (const auto& [name, average] : step.ema()->state()) EXPECT_TRUE(average.eq(0.5).all().item<bool>()) << name;
}

TEST(Step, O2KeepsWeightsThatWereLoadedAfterItWasMade) {
  torch::nn::Linear net = linear();
  optim::lower_precision(*net, torch::kBFloat16);
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  Step step(net, optimizer, {.loss = kLoss, .amp = {.level = AmpLevel::O2, .dtype = torch::kBFloat16}});
  const Samples batch = samples(8);
  for (const double value : {0.5, 0.25}) {
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : net->parameters()) parameter.fill_(value);
    const torch::AutoGradMode with_graph(true);
    step(batch.x, batch.y);
    EXPECT_TRUE(net->weight.eq(value).all().item<bool>()) << value;
    EXPECT_TRUE(step.masters()->parameters()[0].eq(value).all().item<bool>()) << value;
  }
}

TEST(Step, ForgetsAGroupThatIsDropped) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  Step step(net, optimizer, {.loss = kLoss, .accumulate = 2});
  const Samples all = samples(100);
  step(all.rows(50, 10).x, all.rows(50, 10).y);
  step.drop_gradients();
  step(all.rows(0, 5).x, all.rows(0, 5).y);
  step(all.rows(5, 5).x, all.rows(5, 5).y);
  EXPECT_TRUE(weights(net).allclose(trained({10}, {}), 1e-6, 1e-7));
}

TEST(Step, KeepsTheAverageOfTheWeights) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  Step step(net, optimizer, {.loss = kLoss, .ema_decay = 0.5});
  const Tensor before = weights(net);
  const Samples batch = samples(10);
  step(batch.x, batch.y);
  const Tensor after = weights(net);
  {
    const auto averaged = step.ema()->apply();
    EXPECT_TRUE(weights(net).allclose(0.5 * before + 0.5 * after));
  }
  EXPECT_TRUE(weights(net).equal(after));
}

TEST(Step, PutsTheModelIntoTrainingMode) {
  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Step step(net, optimizer, {.loss = kLoss});
  net->eval();
  const Samples batch = samples(10);
  step(batch.x, batch.y);
  EXPECT_TRUE(net->is_training());
}

TEST(Step, LeavesOutStepsWhoseGradientsOverflow) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  Step step(net, optimizer,
            {.amp = {.level = AmpLevel::O1, .dtype = torch::kHalf, .scaler = {.init_scale = 128}}, .ema_decay = 0.5});
  const Tensor before = weights(net);
  step([&] { return net->weight.sum() * std::numeric_limits<float>::infinity(); });
  EXPECT_EQ(step.update(), Update::skipped);
  EXPECT_TRUE(weights(net).equal(before));
  EXPECT_EQ(step.scaler().current_scale(), 64);
  step([&] { return net->weight.sum(); });
  EXPECT_EQ(step.update(), Update::done);
  EXPECT_TRUE(net->weight.detach().reshape({-1}).allclose(before.narrow(0, 0, 12) - 0.1));
}

TEST(Step, ShowsTheFinalGradientsBeforeTheUpdate) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  double seen = 0;
  Step step(net, optimizer,
            {.amp = {.level = AmpLevel::O1, .dtype = torch::kHalf, .scaler = {.init_scale = 128}},
             .clip_norm = 0.5,
             .before_update = [&] { seen = optim::grad_norm(net->parameters()).item<double>(); }});
  step([&] { return net->weight.sum(); });
  EXPECT_NEAR(seen, 0.5, 1e-6);
}

TEST(Step, O2StepsFloatCopiesOfLowWeights) {
  torch::nn::Linear net = linear();
  optim::lower_precision(*net, torch::kBFloat16);
  optim::Momentum optimizer(net->parameters(), {.lr = 1e-4});  // lost in bf16
  Step step(net, optimizer, {.amp = {.level = AmpLevel::O2}});
  const Tensor before = step.masters()->parameters()[0].detach().clone();
  step([&] { return net->weight.sum(); });
  EXPECT_EQ(net->weight.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(step.masters()->parameters()[0].allclose(before - 1e-4, 0, 1e-6));
  EXPECT_TRUE(net->weight.equal(step.masters()->parameters()[0].to(torch::kBFloat16)));
}

TEST(Step, GoesOnFromACheckpointWithTheSameBits) {
  const TempDir folder;
  const Samples all = samples(100);
  const StepOptions options{.loss = kLoss, .clip_norm = 1.0, .accumulate = 2, .ema_decay = 0.9};
  const auto run = [&](int64_t first, int64_t last, bool resume) {
    torch::nn::Linear net = linear();
    optim::Adam optimizer(net->parameters(), {.lr = 0.01});
    Step step(net, optimizer, options);
    Checkpoint checkpoint(folder.path());
    const Restored restored = resume ? checkpoint.restore(step.state()) : Restored();
    EXPECT_EQ(restored.step, first);
    for (int64_t i = first; i < last; ++i) step(all.rows(10 * i, 10).x, all.rows(10 * i, 10).y);
    checkpoint.save(step.state(), {.step = last});
    return torch::cat({weights(net), step.ema()->state()[0].second.reshape({-1})});
  };
  const Tensor whole = run(0, 8, false);
  std::filesystem::remove_all(folder.path());
  run(0, 4, false);
  EXPECT_TRUE(run(4, 8, true).equal(whole));
}

TEST(Step, SavesNoCheckpointInTheMiddleOfAGroup) {
  const TempDir folder;
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  Step step(net, optimizer, {.loss = kLoss, .accumulate = 4});
  const Samples batch = samples(10);
  step(batch.x, batch.y);
  EXPECT_THAT([&] { Checkpoint(folder.path()).save(step.state()); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("after 1 of 4 batches"), HasSubstr("pending() is 0"))));
}

TEST(Step, RunsNoGraphWhereAVariableForbidsIt) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  const CaughtLog log;
  const ScopedVariable variable("TRIREME_GRAPH", "0");
  const Step step(net, optimizer, {.loss = kLoss, .graph = true});
  EXPECT_EQ(log.count("no CUDA graph: TRIREME_GRAPH is 0; steps run one operator after the other"), 1U);
}

/// The lines that say why there is no graph, of what `use` does with a Step that was asked for one.
std::vector<std::string> reasons_of(const std::function<void(Step&)>& use, int64_t accumulate = 1) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  const CaughtLog log;
  Step step(net, optimizer, {.loss = kLoss, .accumulate = accumulate, .graph = true});
  use(step);
  return log.lines();
}

std::string no_graph(const std::string& reason) {
  return "info: train::Step: no CUDA graph: " + reason + "; steps run one operator after the other";
}

const std::string kNoGpu = no_graph("the model is not on a GPU");

TEST(Step, SaysWhyItHasNoGraph) {
  const Samples batch = samples(10);
  EXPECT_THAT(reasons_of([&](Step& step) { step(batch.x, batch.y, {.update = true}); }), ElementsAre(kNoGpu));
  EXPECT_THAT(reasons_of([](Step&) {}, 4), ElementsAre(kNoGpu, no_graph("accumulate is 4")));
  const auto accumulates = [](Step& step) {
    for (int i = 0; i < 2; ++i) step.set_accumulate(3);
    step.set_accumulate(1);
  };
  EXPECT_THAT(reasons_of(accumulates), ElementsAre(kNoGpu, no_graph("accumulate is 3")));
}

TEST(Step, SaysOnceWhichCallsHaveNoGraph) {
  const Samples batch = samples(10);
  const auto leaves_open = [&](Step& step) {
    for (int i = 0; i < 2; ++i) step(batch.x, batch.y, {.update = false});
  };
  EXPECT_THAT(reasons_of(leaves_open), ElementsAre(kNoGpu, HasSubstr("no CUDA graph: a batch has .update = false")));
  const auto calls_a_function = [&](Step& step) {
    for (int i = 0; i < 2; ++i) step([&] { return step.model().forward({batch.x})[0].sum(); });
  };
  EXPECT_THAT(reasons_of(calls_a_function), ElementsAre(kNoGpu, HasSubstr("no CUDA graph: step([&] { … }) runs")));
}

TEST(Step, ChecksWhatItIsGiven) {
  torch::nn::Linear net = linear();
  optim::Momentum optimizer = momentum(net);
  const Samples batch = samples(10);
  const auto refused = [&](const StepOptions& options, const char* words) {
    EXPECT_THAT([&] { Step(net, optimizer, options)(batch.x, batch.y); }, ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  refused({}, "needs a loss");
  refused({.loss = kLoss, .accumulate = 0}, "accumulate is 0");
  refused({.loss = kLoss, .clip_norm = 0.0}, "clip_norm is 0");
  refused({.loss = [](const Tensor& output, const Tensor&) { return output; }}, "the loss has 30 elements");
  refused({.loss = kLoss, .amp = {.level = AmpLevel::O2}}, "call optim::lower_precision");
  EXPECT_THAT([&] { Step(torch::nn::Linear(4, 3), optimizer); },
              ThrowsMessage<UsageError>(HasSubstr("2 of the optimizer's 2")));
  EXPECT_THAT([&] { Step(net, optimizer, {.loss = kLoss})(batch.x, batch.y, {.samples = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("0 samples")));
  struct Pair : torch::nn::Module {
    Tensor forward(const Tensor& a, const Tensor& b) { return a * weight + b; }
    Tensor weight = register_parameter("weight", torch::ones({}));
  };
  const auto pair = std::make_shared<Pair>();
  torch::optim::SGD sgd(pair->parameters(), 0.1);
  EXPECT_THAT([&] { Step(pair, sgd, {.loss = kLoss})(batch.x, batch.y); },
              ThrowsMessage<UsageError>(HasSubstr("takes 2 inputs, and got 1")));
}

}  // namespace
}  // namespace trireme::train
