// Worlds that end: by a killed rank, by an exception, by request.
#include <signal.h>

#include <iostream>

#include "cases.h"

namespace trireme::test {
namespace {

struct TwoLayers : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor between = first(x);
    if (during_backward) between.register_hook([f = during_backward](const torch::Tensor&) { f(); });
    return second(between);
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 4));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(4, 4));
  std::function<void()> during_backward;  // when `second` has its gradients and `first` has not
};

// Steps until one fails, at most 10; returns the error of it.
std::string train(DataParallel<std::shared_ptr<TwoLayers>>& model, int fail_at, const std::function<void()>& failure) {
  for (int step = 0; step < 10; ++step) {
    model->during_backward = step == fail_at ? failure : nullptr;
    const std::string error = error_of([&] { model(torch::ones({2, 4})).sum().backward(); });
    if (error != "nothing") return error;
  }
  return "nothing";
}

void killed(const World& world, int at_step) {
  ::signal(SIGTERM, SIG_IGN);  // of the launcher, which also sees the dead rank
  DataParallel model(seeded<TwoLayers>(), world);
  const int victim = world.size() - 1;
  const std::string error = train(model, world.rank() == victim ? at_step : -1, [] { ::raise(SIGKILL); });
  require(error.starts_with("PeerError: "), error);
  require(error.find(fmt::format("rank {}", victim)) != std::string::npos, error);
  const std::string again = error_of([&] { model(torch::ones({2, 4})).sum().backward(); });
  require(again.find("an earlier backward() has failed") != std::string::npos, again);
  std::cout << fmt::format("rank {} goes on: {}\n", world.rank(), error) << std::flush;
}

void killed_in_the_first_backward(const World& world) {
  killed(world, 0);
}
void killed_later(const World& world) {
  killed(world, 3);
}

// The last stage dies in the middle of a batch, where the others wait for its gradients.
struct Deadly : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (++calls == 7) ::raise(SIGKILL);
    return x;
  }
  int calls = 0;
};
void killed_in_a_pipeline(const World& world) {
  ::signal(SIGTERM, SIG_IGN);
  std::vector<PipelineLayer> layers;
  for (int i = 0; i < 5; ++i) layers.push_back({fmt::format("fc{}", i), [] { return torch::nn::Linear(4, 4); }});
  layers.push_back({"deadly", [] { return std::make_shared<Deadly>(); }});
  Pipeline pipe(layers, world, {.micro_batches = 4, .loss = [](const torch::Tensor& out, const torch::Tensor& target) {
                                  return torch::mse_loss(out, target);
                                }});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto step = [&] { pipe.train_batch(torch::ones({8, 4}), torch::ones({8, 4}), sgd); };
  step();
  const std::string error = error_of(step);
  require(error.starts_with("PeerError: pipe stage "), error);
  require(error.find(fmt::format("rank {}", world.size() - 1)) != std::string::npos, error);
  std::cout << fmt::format("rank {} goes on: {}\n", world.rank(), error) << std::flush;
}

// An exception on one rank, which lives on: the others must not wait for its gradients.
void thrown(const World& world, int at_step) {
  DataParallel model(seeded<TwoLayers>(), world);
  const int culprit = world.size() - 1;
  const std::string error =
      train(model, world.rank() == culprit ? at_step : -1, [] { throw std::runtime_error("in the middle"); });
  if (world.rank() == culprit)
    require(error.find("in the middle") != std::string::npos, error);
  else
    require(error.starts_with("PeerError: ") && error.find(fmt::format("rank {}", culprit)) != std::string::npos,
            error);
  require_error(
      [&] {
        model(torch::ones({2, 4})).sum().backward();
      },
      "PeerError", {"an earlier backward() has failed"});
}

void thrown_in_the_first_backward(const World& world) {
  if (world.size() > 1) thrown(world, 0);
}
void thrown_later(const World& world) {
  if (world.size() > 1) thrown(world, 3);
}

void again(const World& world) {
  const int size = world.size();
  for (int round = 0; round < 3; ++round) {
    destroy_parallel_env();
    require(!is_initialized(), "destroyed");
    require_error([] { Group::world(); }, "UsageError", {"init_parallel_env"});
    const World next = init_parallel_env();
    require(is_initialized() && next.size() == size, "a new world");
    DataParallel model(seeded<TwoLayers>(), next);
    for (int step = 0; step < 3; ++step) model(torch::full({2, 4}, 1.0 * next.rank())).sum().backward();
    require_equal_everywhere(model->first->weight.grad(), "in a new world");
  }
}

}  // namespace

std::vector<Case> last_cases() {
  return {{"killed_in_the_first_backward", killed_in_the_first_backward},
          {"killed_later", killed_later},
          {"killed_in_a_pipeline", killed_in_a_pipeline},
          {"thrown_in_the_first_backward", thrown_in_the_first_backward},
          {"thrown_later", thrown_later},
          {"again", again}};
}

}  // namespace trireme::test
