// What the checks of DataParallel cost beside a training step. By hand: trireme launch -n 2 parameter_check_bench
#include <trireme/parallel/model_parameters.h>
#include <trireme/parallel/parameter_check.h>
#include <trireme/trireme.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <vector>

using namespace trireme;

namespace {

// Milliseconds, the median of some calls.
double median_of(int calls, const std::function<void()>& f) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[static_cast<size_t>(calls / 2)];
}

template <typename Net>
void measure(const char* name, Net net, const torch::Tensor& x, const World& world) {
  DataParallel model(net, world, {.parameter_check_interval = 0});
  optim::Momentum optimizer(model->parameters(), {.lr = 1e-3});
  const auto step = [&] {
    model(x).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  for (int i = 0; i < 3; ++i) step();  // learns, makes buckets
  const double step_ms = median_of(7, step);
  const double check_ms = median_of(15, [&] { parallel::require_equal_parameters(*net, world, "bench"); });
  const parallel::ModelParameters known(*net);
  const double tree_ms = median_of(101, [&] {
    if (!known.is_current(*net)) throw UsageError("bench: the model has changed by itself");
  });
  int64_t bytes = 0;
  for (const torch::Tensor& parameter : net->parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  if (world.rank() == 0)
    std::cout << fmt::format("| {} | {:.1f} | {:.2f} | {:.3f} | {:.1f} |\n", name, static_cast<double>(bytes) / 1e6,
                             step_ms, check_ms, tree_ms * 1000);
}

}  // namespace

int main() try {
  const World world = init_parallel_env();
  measure("MNIST perceptron, batch 32", models::mnist_perceptron(), torch::randn({32, 1, 28, 28}, world.device()),
          world);
  measure("LeNet, batch 64", models::lenet(10), torch::randn({64, 1, 28, 28}, world.device()), world);
  measure("MobileNetV3-small, batch 16", models::mobilenet_v3_small(), torch::randn({16, 3, 224, 224}, world.device()),
          world);
  measure("ResNet50, batch 4", models::resnet50(), torch::randn({4, 3, 224, 224}, world.device()), world);
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
