// Gradients that are not just averaged.
#include "cases.h"

namespace trireme::test {
namespace {

std::shared_ptr<torch::nn::LinearImpl> linear() {
  return seeded<torch::nn::LinearImpl>(torch::nn::LinearOptions(64, 64).bias(false));
}

// The gradients of some steps on this rank's inputs, without an optimizer in between.
template <typename Model>
torch::Tensor gradient(Model& model, const torch::Tensor& x) {
  model->zero_grad();
  model->forward(x).square().mean().backward();
  return model->weight.grad().clone();
}

void custom_hook(const World& world) {
  DataParallel model(linear(), world);
  int calls = 0;
  model.set_gradient_hook([&](const GradientBucket& bucket, const Group& group) {
    ++calls;
    require(bucket.index == 0 && bucket.gradients.size() == 1, "one bucket with one gradient");
    require(bucket.gradients[0].sizes() == at::IntArrayRef({64, 64}), "in its shape");
    bucket.flat.fill_(group.rank() + 1);
    return all_reduce_async(bucket.flat, ReduceOp::max, group).then([flat = bucket.flat] { flat.mul_(10); });
  });
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor result = gradient(model, numbers({4, 64}, step));
    if (world.size() > 1)
      require(result.equal(torch::full({64, 64}, 10.0 * world.size())), fmt::format("step {}", step));
  }
  if (world.size() == 1) return;
  require(calls == 3, fmt::format("{} calls", calls));
  require_error([&] { model.set_gradient_hook(average_gradients()); }, "UsageError", {"after the first backward"});
}

void hook_that_throws(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(linear(), world);
  int calls = 0;
  model.set_gradient_hook([&](const GradientBucket& bucket, const Group& group) {
    if (++calls == 2 && group.rank() == 0) throw std::runtime_error("the hook is unhappy");
    return all_reduce_async(bucket.flat, ReduceOp::avg, group);
  });
  gradient(model, torch::ones({4, 64}));
  const std::string error = error_of([&] { gradient(model, torch::ones({4, 64})); });
  require(error.find(world.rank() == 0 ? "the hook is unhappy" : "PeerError: ") != std::string::npos, error);
}

void rounded(const World& world) {
  DataParallel exact(linear(), world);
  for (const auto& [compression, tolerance] : std::vector<std::pair<GradientCompression, double>>{
           {GradientCompression::bf16, 1e-2}, {GradientCompression::fp16, 1e-3}}) {
    DataParallel model(linear(), world, {.gradient_compression = compression});
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor x = numbers({4, 64}, 10 * step + world.rank());
      const torch::Tensor expected = gradient(exact, x);
      const torch::Tensor got = gradient(model, x);
      require_near(got, expected, tolerance, "rounded gradients");
      require(world.size() == 1 || !got.equal(expected), "not compressed at all");
      require_equal_everywhere(got, "rounded gradients");
    }
  }
}

// y = W x with a W of rank 2: what PowerSGD's thin matrices can hold.
void power_sgd_learns(const World& world) {
  DataParallel model(linear(), world, {.gradient_compression = GradientCompression::powersgd, .powersgd_rank = 2});
  torch::optim::SGD sgd(model->parameters(), 0.1);
  const torch::Tensor truth = numbers({64, 2}, 1).matmul(numbers({2, 64}, 2)) / 8;
  {
    const torch::NoGradGuard no_grad;
    model->weight.zero_();
  }
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const torch::Tensor x = numbers({64, 64}, 1000 + world.size() * step + world.rank());
    const torch::Tensor loss = (model(x) - x.matmul(truth.t())).square().sum(1).mean() / 2;
    sgd.zero_grad();
    loss.backward();
    sgd.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  require(last < 1e-3 * first, fmt::format("loss {} in the beginning, {} in the end", first, last));
  require_equal_everywhere(model->weight, "powersgd");
}

void power_sgd_arguments(const World& world) {
  require_error(
      [&] {
        static_cast<void>(
            DataParallel(linear(), world, {.gradient_compression = GradientCompression::powersgd, .powersgd_rank = 0}));
      },
      "UsageError", {"powersgd_rank = 0", "at least 1"});
}

}  // namespace

std::vector<Case> hook_cases() {
  return {{"custom_hook", custom_hook},
          {"hook_that_throws", hook_that_throws},
          {"rounded", rounded},
          {"power_sgd_learns", power_sgd_learns},
          {"power_sgd_arguments", power_sgd_arguments}};
}

}  // namespace trireme::test
