// Training steps of a network of the zoo: time, images a second, the losses.
//
//   step_bench mobilenet_v3_small 64 20 weights.safetensors          # network, batch, steps
//   step_bench resnet50 16 5 - channels_first                        # weights of its own, pictures in the usual order
//   trireme launch -n 2 step_bench resnet50 16 5 weights.safetensors sync_bn           # normalises over all ranks
//
// The pictures are numbers that step_peers.py makes too. Prints one line of key=value words.
#include <sys/resource.h>
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

/// Of this process, on all its threads: on a machine that has other work too, a fairer measure than the time.
double cpu_milliseconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto milliseconds = [](const timeval& time) {
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_usec);
  };
  return milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
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

struct Options {
  std::string network;
  int64_t batch = 0;
  int steps = 0;
  std::string weights;
  bool channels_first = false, sync_bn = false;
};

void run(const Options& options) {
  const auto& [network, batch, steps, weights, channels_first, sync_bn] = options;
  const auto start = Clock::now();
  const World world = init_parallel_env();
  torch::manual_seed(1);  // for weights that are not read
  // Dropout draws other random numbers here and there.
  const auto net =
      models::create(network, {.dropout = network.starts_with("mobilenet") ? std::optional(0.0) : std::nullopt});
  if (weights != "-") io::load_into(*net, io::load_safetensors(weights), {.from = weights});
  if (sync_bn) convert_sync_batch_norm(*net, world);
  DataParallel model(net, world);
  optim::Momentum sgd(net->parameters(), {.lr = 0.01, .momentum = 0.9});
  train::Step step(model, sgd, {.loss = torch::nn::CrossEntropyLoss()});
  const torch::Tensor x = channels_first ? pictures(batch).contiguous() : pictures(batch);
  const torch::Tensor y = torch::arange(batch).remainder(10);
  std::vector<double> times, cpu_times, losses;
  double first = 0;
  for (int i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    const double cpu_begin = cpu_milliseconds();
    losses.push_back(step(x, y).item<double>());
    times.push_back(milliseconds_since(begin));
    cpu_times.push_back(cpu_milliseconds() - cpu_begin);
    if (i == 0) first = milliseconds_since(start);
  }
  const double middle = median(times);
  if (world.rank() != 0) return;
  std::cout << fmt::format("step_ms={:.2f} cpu_ms={:.0f} images={:.2f} first_ms={:.0f} loss0={:.8f} loss4={:.8f}\n",
                           middle, median(cpu_times), 1000 * static_cast<double>(batch) / middle, first, losses[0],
                           losses[std::min<size_t>(4, losses.size() - 1)]);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto has = [&](const char* word) { return std::find(words.begin() + 4, words.end(), word) != words.end(); };
  if (words.size() < 4) throw UsageError("usage: step_bench NETWORK BATCH STEPS WEIGHTS|- [channels_first] [sync_bn]");
  run({.network = words[0],
       .batch = std::stoll(words[1]),
       .steps = std::stoi(words[2]),
       .weights = words[3],
       .channels_first = has("channels_first"),
       .sync_bn = has("sync_bn")});
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
