// Steps of a language model that is split over the ranks, or not: time, memory and the loss at the end.
//
//   trireme launch -n 4 hybrid_bench parameters width=512 layers=15 unit=4 batch=1 length=64 steps=8
//
// The first word: data_parallel, optimizer, gradients or parameters. Rank 0 prints one line of key=value words.
#include <tests/support/allocation_counter.h>
#include <tests/support/gpt_stack.h>
#include <trireme/trireme.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <vector>

using namespace trireme;

namespace {

using test::GptShape;
using test::GptStack;

struct Settings {
  std::string mode;
  std::map<std::string, int64_t> numbers = {{"width", 512}, {"layers", 4}, {"words", 512}, {"length", 64},
                                            {"batch", 2},   {"steps", 10}, {"unit", 25}};

  Settings(int count, char** words) : mode(count > 1 ? words[1] : "data_parallel") {
    for (int i = 2; i < count; ++i) {
      const std::string_view word = words[i];
      const size_t sign = word.find('=');
      const auto found = sign == word.npos ? numbers.end() : numbers.find(std::string(word.substr(0, sign)));
      if (found == numbers.end()) throw UsageError("hybrid_bench: what is '{}'?", word);
      std::from_chars(word.data() + sign + 1, word.data() + word.size(), found->second);
    }
  }
  int64_t operator[](const std::string& name) const { return numbers.at(name); }
  GptShape shape() const {
    return {.width = numbers.at("width"),
            .layers = numbers.at("layers"),
            .heads = 8,
            .words = numbers.at("words"),
            .length = numbers.at("length")};
  }
};

// Of /proc/self/status, in bytes: VmHWM is the most physical memory so far.
int64_t status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return 0;
}

struct Measured {
  double step_ms = 0;  // the median
  double loss = 0;     // after the last step, over all ranks
};

template <typename Model>
Measured train(Model& model, const std::vector<torch::Tensor>& parameters, const Settings& settings,
               const World& world) {
  torch::optim::Adam adam(parameters, 1e-3);
  const GptShape shape = settings.shape();
  std::vector<double> times;
  torch::Tensor loss;
  for (int64_t step = 0; step < settings["steps"]; ++step) {
    const torch::Tensor all = test::gpt_tokens(shape, settings["batch"] * world.size(), step % 2);
    const torch::Tensor mine = all.narrow(0, settings["batch"] * world.rank(), settings["batch"]).clone();
    barrier(world);
    const auto start = std::chrono::steady_clock::now();
    loss = test::gpt_loss(model(mine.narrow(1, 0, shape.length)), mine);
    loss.backward();
    adam.step();
    adam.zero_grad();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  torch::Tensor mean = loss.detach().clone();
  all_reduce(mean, ReduceOp::avg, world);
  times.erase(times.begin(), times.begin() + std::min<int64_t>(3, settings["steps"] - 1));  // these learn the order
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return {times[times.size() / 2], mean.item<double>()};
}

Shard shard_of(const std::string& mode) {
  if (mode == "optimizer") return Shard::optimizer;
  if (mode == "gradients") return Shard::gradients;
  if (mode == "parameters") return Shard::parameters;
  throw UsageError("hybrid_bench: what is '{}'? data_parallel, optimizer, gradients or parameters", mode);
}

void run(const Settings& settings, const World& world) {
  test::AllocationCounter& counter = test::count_allocations();
  const int64_t before = status("VmRSS");
  auto net = std::make_shared<GptStack>(settings.shape());
  const int64_t parameters = net->parameter_count();
  Measured measured;
  if (settings.mode == "data_parallel") {
    DataParallel model(net, world);
    counter.start_peak();
    measured = train(model, model->parameters(), settings, world);
  } else {
    ShardedDataParallel model(net, world,
                              {.shard = shard_of(settings.mode), .unit_size = static_cast<int>(settings["unit"])});
    counter.start_peak();
    measured = train(model, model.parameters(), settings, world);
  }
  if (world.rank() == 0)
    std::cout << fmt::format("mode={} ranks={} parameters={} step_ms={:.2f} loss={:.6f} peak={} resident={}\n",
                             settings.mode, world.size(), parameters, measured.step_ms, measured.loss, counter.peak(),
                             status("VmHWM") - before)
              << std::flush;
}

}  // namespace

int main(int argc, char** argv) try {
  const World world = init_parallel_env();
  run(Settings(argc, argv), world);
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
