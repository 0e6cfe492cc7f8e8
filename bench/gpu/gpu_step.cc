// Training steps of a network of the zoo on a GPU, in bfloat16, with pictures that are there already.
//
//   gpu_step resnet50 256 60               # network, batch, steps
//   gpu_step resnet50 256 60 graph         # the step in a CUDA graph
//   gpu_step resnet50 256 60 O2            # weights in bfloat16, with float copies for the optimizer
//   gpu_step resnet50 256 60 float32       # without autocast
//   gpu_step resnet50 256 60 trace=t.json  # writes a time line of two more steps, for chrome://tracing
//
// The pictures are numbers that gpu_step_peers.py makes too. Prints one line of key=value words: images a second without
// waiting between steps, the time from the start of the program to the end of the first step, and losses.
#include <torch/csrc/autograd/profiler_kineto.h>
#include <trireme/trireme.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <vector>

using namespace trireme;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

torch::Tensor pictures(int64_t batch, torch::Device device) {
  const torch::Tensor places =
      torch::arange(batch * 3 * 224 * 224, torch::TensorOptions(torch::kDouble).device(device));
  return (places * 0.37)
      .sin()
      .to(torch::kFloat)
      .view({batch, 3, 224, 224})
      .contiguous(torch::MemoryFormat::ChannelsLast);
}

void trace(const std::string& path, const std::function<void()>& work) {
  using namespace torch::autograd::profiler;
  const std::set<ActivityType> activities = {ActivityType::CPU, ActivityType::CUDA};
  const ProfilerConfig config(ProfilerState::KINETO);
  prepareProfiler(config, activities);
  enableProfiler(config, activities);
  work();
  torch::cuda::synchronize();
  disableProfiler()->save(path);
}

void run(const std::vector<std::string>& words) {
  const auto start = Clock::now();
  const auto has = [&](const char* word) { return std::find(words.begin() + 3, words.end(), word) != words.end(); };
  const int64_t batch = std::stoll(words[1]);
  const int steps = std::stoi(words[2]);
  const World world = init_parallel_env();
  at::globalContext().setBenchmarkCuDNN(true);
  torch::manual_seed(1);
  const auto net =
      models::create(words[0], {.dropout = words[0].starts_with("mobilenet") ? std::optional(0.0) : std::nullopt});
  if (has("O2")) optim::lower_precision(*net, torch::kBFloat16);
  nn::to_channels_last(*net);
  DataParallel model(net, world);
  optim::Momentum sgd(net->parameters(), {.lr = 0.01, .momentum = 0.9});
  train::StepOptions options{.loss = torch::nn::CrossEntropyLoss()};
  options.graph = has("graph");
  if (!has("float32")) options.amp = {.level = has("O2") ? AmpLevel::O2 : AmpLevel::O1, .dtype = torch::kBFloat16};
  train::Step step(model, sgd, options);
  const torch::Tensor x = pictures(batch, world.device());
  const torch::Tensor y = torch::arange(batch, torch::TensorOptions(torch::kLong).device(world.device())).remainder(10);
  const double first_loss = step(x, y).item<double>();
  const double first = seconds_since(start);
  for (int i = 0; i < 9; ++i) step(x, y);
  const double tenth_loss = step(x, y).item<double>();
  torch::cuda::synchronize();
  const auto begin = Clock::now();
  for (int i = 0; i < steps; ++i) step(x, y);
  torch::cuda::synchronize();
  const double seconds = seconds_since(begin) / steps;
  std::cout << fmt::format("images={:.0f} step_ms={:.2f} first_s={:.2f} loss0={:.6f} loss10={:.6f}\n",
                           static_cast<double>(batch) / seconds, 1e3 * seconds, first, first_loss, tenth_loss);
  for (const std::string& word : words)
    if (word.starts_with("trace="))
      trace(word.substr(6), [&] {
        step(x, y);
        step(x, y);
      });
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 3) throw UsageError("usage: gpu_step NETWORK BATCH STEPS [graph] [float32]");
  run(words);
} catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << "\n";
  return 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
