// Training steps of a network of the zoo: time, images a second, the losses.
//
//   step_bench mobilenet_v3_small 64 20 weights.safetensors          # network, batch, steps
//
// The pictures are numbers that step_peers.py makes too. Prints one line of key=value words.
#include <trireme/trireme.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <vector>

using namespace trireme;

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

torch::Tensor pictures(int64_t batch) {
  const torch::Tensor places = torch::arange(batch * 3 * 224 * 224, torch::kDouble);
  return (places * 0.37)
      .sin()
      .to(torch::kFloat)
      .view({batch, 3, 224, 224})
      .contiguous(torch::MemoryFormat::ChannelsLast);
}

double median(std::vector<double> times) {
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4));  // these warm up
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void run(const std::string& network, int64_t batch, int steps, const std::string& weights) {
  const auto start = Clock::now();
  const World world = init_parallel_env();
  // Dropout draws other random numbers here and there.
  const auto net =
      models::create(network, {.dropout = network.starts_with("mobilenet") ? std::optional(0.0) : std::nullopt});
  io::load_into(*net, io::load_safetensors(weights), {.from = weights});
  DataParallel model(net, world);
  optim::Momentum sgd(net->parameters(), {.lr = 0.01, .momentum = 0.9});
  train::Step step(model, sgd, {.loss = torch::nn::CrossEntropyLoss()});
  const torch::Tensor x = pictures(batch), y = torch::arange(batch).remainder(10);
  std::vector<double> times, losses;
  double first = 0;
  for (int i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    losses.push_back(step(x, y).item<double>());
    times.push_back(milliseconds_since(begin));
    if (i == 0) first = milliseconds_since(start);
  }
  const double middle = median(times);
  std::cout << fmt::format("step_ms={:.2f} images={:.2f} first_ms={:.0f} loss0={:.6f} loss4={:.6f}\n", middle,
                           1000 * static_cast<double>(batch) / middle, first, losses[0],
                           losses[std::min<size_t>(4, losses.size() - 1)]);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw UsageError("usage: step_bench NETWORK BATCH STEPS WEIGHTS");
  run(argv[1], std::atoll(argv[2]), std::atoi(argv[3]), argv[4]);
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
