// The bubble of a pipeline whose layers take a set time by waiting, so that two cores do for many stages.
//
//   trireme launch -n 4 bubble_bench zero_bubble micro_batches=8 ms=80 steps=5
//
// The first word: fill_drain, one_f_one_b, interleaved or zero_bubble. Rank 0 prints one line of key=value words: of the
// fastest step the share of the time in which a rank did not work on a layer, and what the formula says.
#include <trireme/parallel/pipeline/schedule.h>
#include <trireme/trireme.h>

#include <charconv>
#include <chrono>
#include <iostream>
#include <map>
#include <thread>

using namespace trireme;

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

double busy = 0;  // seconds that this rank has spent in layers

void work(double seconds) {
  const auto begin = Clock::now();
  std::this_thread::sleep_for(Seconds(seconds));
  busy += Seconds(Clock::now() - begin).count();
}

// Gives its input on, and takes a time in forward and in backward.
struct Wait : torch::autograd::Function<Wait> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               double forward_seconds, double backward_seconds) {
    context->saved_data["seconds"] = backward_seconds;
    work(forward_seconds);
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    work(context->saved_data["seconds"].toDouble());
    return {gradients[0], torch::Tensor(), torch::Tensor()};
  }
};

// 1 for a forward, 1 for the gradient of the input and 1 for that of the weights. The first layer's input has none.
struct WaitingLayer : torch::nn::Module {
  explicit WaitingLayer(double time) : seconds(time) { weight = register_parameter("weight", torch::ones({1})); }
  torch::Tensor forward(const torch::Tensor& x) {
    const double of_weights = x.requires_grad() ? seconds : 2 * seconds;
    return Wait::apply(x, seconds, seconds) * Wait::apply(weight, 0.0, of_weights);
  }
  double seconds;
  torch::Tensor weight;
};

struct Settings {
  Schedule schedule;
  std::map<std::string, int> numbers = {{"micro_batches", 8}, {"ms", 80}, {"steps", 5}};

  Settings(int count, char** words) : schedule(schedule_of(count > 1 ? words[1] : "one_f_one_b")) {
    for (int i = 2; i < count; ++i) {
      const std::string_view word = words[i];
      const size_t sign = word.find('=');
      const auto found = sign == word.npos ? numbers.end() : numbers.find(std::string(word.substr(0, sign)));
      if (found == numbers.end()) throw UsageError("bubble_bench: what is '{}'?", word);
      std::from_chars(word.data() + sign + 1, word.data() + word.size(), found->second);
    }
  }
  static Schedule schedule_of(std::string_view name) {
    for (const Schedule one :
         {Schedule::fill_drain, Schedule::one_f_one_b, Schedule::interleaved, Schedule::zero_bubble})
      if (name == parallel::name_of(one)) return one;
    throw UsageError("bubble_bench: there is no schedule '{}'", name);
  }
};

struct Measured {
  double seconds = 0;  // of a step, from the first rank's begin to the last one's end
  double busy = 0;     // of a rank, on average
};

Measured measure_step(Pipeline& pipe, int rows, const World& world) {
  const torch::Tensor x = torch::ones({rows, 1});
  barrier(world);
  busy = 0;
  const auto begin = Clock::now();
  pipe.accumulate(x, x);
  const torch::Tensor longest = torch::tensor(Seconds(Clock::now() - begin).count(), torch::kDouble);
  const torch::Tensor mean = torch::tensor(busy, torch::kDouble);
  all_reduce(longest, ReduceOp::max, world);
  all_reduce(mean, ReduceOp::avg, world);
  return {longest.item<double>(), mean.item<double>()};
}

void run(const Settings& settings, const World& world) {
  const parallel::PipelineShape shape{.ranks = world.size(),
                                      .chunks = settings.schedule == Schedule::interleaved ? 2 : 1,
                                      .micro_batches = settings.numbers.at("micro_batches")};
  const double seconds = settings.numbers.at("ms") / 1000.0 / shape.chunks;
  std::vector<PipelineLayer> layers;
  for (int i = 0; i < shape.stages(); ++i)
    layers.push_back({fmt::format("wait{}", i), [seconds] { return std::make_shared<WaitingLayer>(seconds); }});
  Pipeline pipe(layers, world,
                {.micro_batches = shape.micro_batches,
                 .schedule = settings.schedule,
                 .chunks = shape.chunks,
                 .loss = [](const torch::Tensor& output, const torch::Tensor&) { return output.mean(); },
                 .device = torch::kCPU});
  measure_step(pipe, shape.micro_batches, world);  // learns the shapes
  Measured best = measure_step(pipe, shape.micro_batches, world);
  for (int i = 1; i < settings.numbers.at("steps"); ++i) {
    const Measured one = measure_step(pipe, shape.micro_batches, world);
    if (one.seconds < best.seconds) best = one;
  }
  const double formula =
      1 - 3.0 * shape.micro_batches * shape.chunks / parallel::shortest_time(settings.schedule, shape);
  if (world.rank() == 0)
    std::cout << fmt::format("schedule={} chunks={} micro_batches={} step_ms={:.1f} bubble={:.4f} formula={:.4f}",
                             parallel::name_of(settings.schedule), shape.chunks, shape.micro_batches,
                             1000 * best.seconds, 1 - best.busy / best.seconds, formula)
              << std::endl;
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings(argc, argv);
  run(settings, init_parallel_env());
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
