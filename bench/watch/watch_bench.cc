// Times that watch_bench.py compares: with and without records, comparisons of calls, and a dashboard.
//
//   trireme launch -n 2 watch_bench step 500        the step of a LeNet with DataParallel
//   trireme launch -n 2 watch_bench reduce 5000     an all_reduce of 1 KB
//   trireme launch -n 2 watch_bench sizes 50        all_reduces of 1 KB, 1 MB and 25 MB
//
// Rank 0 prints a line for each: its name and the median in microseconds.
#include <trireme/trireme.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

using namespace trireme;

namespace {

void print_median(const World& world, const std::string& name, int calls, const std::function<void()>& f) {
  for (int i = 0; i < 5; ++i) f();  // learns, makes buckets, wakes the processors
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  if (world.rank() == 0) std::cout << fmt::format("{} {:.2f}\n", name, times[static_cast<size_t>(calls / 2)]);
}

void time_steps(const World& world, int calls) {
  DataParallel model(models::lenet(10), world);
  optim::Momentum optimizer(model->parameters(), {.lr = 1e-3});
  const torch::Tensor x = torch::randn({64, 1, 28, 28}, world.device());
  print_median(world, "step", calls, [&] {
    model(x).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  });
}

void time_all_reduce(const World& world, int64_t bytes, int calls) {
  const torch::Tensor tensor = torch::zeros({bytes / 4}, world.device());
  print_median(world, std::to_string(bytes), calls, [&] { all_reduce(tensor); });
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw UsageError("usage: watch_bench step|reduce|sizes CALLS");
  const std::string what = argv[1];
  const int calls = std::stoi(argv[2]);
  const World world = init_parallel_env();
  if (what == "step") time_steps(world, calls);
  if (what == "reduce") time_all_reduce(world, 1024, calls);
  if (what == "sizes")
    for (const int64_t bytes : {int64_t(1) << 10, int64_t(1) << 20, int64_t(25) << 20})
      time_all_reduce(world, bytes, calls);
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
