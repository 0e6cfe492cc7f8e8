// Worlds that end: by a killed rank, by an exception, by request.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "cases.h"
#include "trireme/comm/engine/shm/arena.h"

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
  const auto loss = [](const torch::Tensor& out, const torch::Tensor& target) { return torch::mse_loss(out, target); };
  Pipeline pipe(layers, world, {.micro_batches = 4, .loss = loss, .device = torch::kCPU});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto step = [&] { pipe.train_batch(torch::ones({8, 4}), torch::ones({8, 4}), sgd); };
  step();
  const std::string error = error_of(step);
  require(error.starts_with("PeerError: pipe stage "), error);
  require(error.find(fmt::format("rank {}", world.size() - 1)) != std::string::npos, error);
  std::cout << fmt::format("rank {} goes on: {}\n", world.rank(), error) << std::flush;
}

// --- a killed rank of a pipeline, and a run that goes on

constexpr int kPipelineSteps = 6, kFatalStep = 4;

// A layer that says when it is called, and when its gradient comes.
struct Watched : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::tanh(fc(x));
    if (in_forward) in_forward(calls++);
    if (in_backward && y.requires_grad()) y.register_hook([f = in_backward](const torch::Tensor&) { f(); });
    return y;
  }
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(torch::nn::LinearOptions(200, 200)));
  int calls = 0;  // in this step
  std::function<void(int call)> in_forward;
  std::function<void()> in_backward;
};

std::vector<PipelineLayer> watched_layers() {
  std::vector<PipelineLayer> layers;
  for (int i = 0; i < 6; ++i)
    layers.push_back({fmt::format("layer{}", i), [] {
                        auto layer = std::make_shared<Watched>();
                        layer->to(torch::kDouble);
                        return layer;
                      }});
  return layers;
}

std::optional<ShardedOptions> sharding_named(const std::string& name) {
  const std::map<std::string, Shard> levels{
      {"optimizer", Shard::optimizer}, {"gradients", Shard::gradients}, {"parameters", Shard::parameters}};
  if (name == "none") return std::nullopt;
  return ShardedOptions{.shard = levels.at(name), .unit_size = 1};
}

// Trains to step 6 with TRIREME_TEST_PIPE stages, the rest of the ranks being the data axis, and saves after every second
// step, from the newest checkpoint of TRIREME_TEST_FOLDER if there is one. In step 5, or in the second save, rank
// TRIREME_TEST_VICTIM dies in TRIREME_TEST_PHASE. The batches are the same in every layout.
class PipelineRun {
 public:
  explicit PipelineRun(const World& world)
      : world_(world),
        mesh_(world, {{"pipe", std::stoi(setting("TRIREME_TEST_PIPE"))}, {"data", -1}}),
        pipe_(watched_layers(), mesh_["pipe"], options()),
        adam_(pipe_.parameters(), 1e-3) {}

  void train() {
    Checkpoint checkpoint(folder_, world_);
    TrainingState state{.model = pipe_, .optimizer = adam_};
    state.extra.emplace_back(
        "victim", [this] { return die_in("save"), std::string(); }, [](const std::string&) {});
    step_ = static_cast<int>(checkpoint.restore(state).step);
    if (world_.rank() == 0) std::cout << fmt::format("goes on from step {}\n", step_) << std::flush;
    while (step_ < kPipelineSteps) {
      take_step();
      ++step_;
      if (step_ % 2 == 0) checkpoint.save(state, {.step = step_});
    }
    checkpoint.wait();
  }

 private:
  PipelineOptions options() const {
    const auto loss = [](const torch::Tensor& x, const torch::Tensor& y) { return torch::mse_loss(x, y); };
    PipelineOptions options{.micro_batches = 4, .loss = loss, .device = torch::kCPU, .data = mesh_["data"]};
    options.shard = sharding_named(setting("TRIREME_TEST_SHARD"));
    return options;
  }

  void watch_layers() {
    for (const auto& module : pipe_->children()) {
      auto& layer = dynamic_cast<Watched&>(*module);
      layer.calls = 0;
      // The outputs of the first micro-batch are on their way when the second comes.
      layer.in_forward = [this](int call) { die_in(call == 0 ? "forward" : "send"); };
      layer.in_backward = [this] { die_in("backward"); };
    }
  }

  void take_step() {
    watch_layers();
    const auto batch = [&](int seed) { return share(numbers({16, 200}, seed).to(torch::kDouble), mesh_["data"]); };
    pipe_.accumulate(batch(step_), batch(100 + step_));
    optim::clip_grad_norm(pipe_.parameters(), 0.5);
    die_in("optimizer");
    adam_.step();
    adam_.zero_grad();
  }

  void die_in(const std::string& phase) {
    const bool is_victim = setting("TRIREME_TEST_VICTIM") == std::to_string(world_.rank());
    if (!is_victim || step_ != kFatalStep || phase != setting("TRIREME_TEST_PHASE")) return;
    std::ofstream(folder_ + ".died") << phase;
    ::raise(SIGKILL);
  }

  World world_;
  std::string folder_ = setting("TRIREME_TEST_FOLDER");
  int step_ = 0;
  Mesh mesh_;
  Pipeline pipe_;
  torch::optim::Adam adam_;
};

io::TensorMap last_weights(const std::string& folder) {
  return io::load_safetensors(std::filesystem::path(folder) / "step_000000006" / "model.safetensors");
}

// The weights are those of a run that nothing has disturbed; that one has trained before, in TRIREME_TEST_EXPECTED.
void pipeline_killed(const World& world) {
  { PipelineRun(world).train(); }
  if (world.rank() != 0) return;
  const io::TensorMap expected = last_weights(setting("TRIREME_TEST_EXPECTED"));
  const io::TensorMap weights = last_weights(setting("TRIREME_TEST_FOLDER"));
  require(expected.size() == 12 && weights.size() == 12, "another number of tensors");
  for (const auto& item : expected)
    require_near(weights[item.key()], item.value(), 1e-9, item.key() + " after a killed rank and a resume");
}

// --- exceptions

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

bool lies_in_shared_memory(const torch::Tensor& tensor) {
  const comm::shm::Arena* const arena = comm::shm::Arena::of_process();
  return arena != nullptr && arena->contains(tensor.data_ptr());
}

void large_tensors_are_shared(const World&) {
  require(lies_in_shared_memory(torch::empty({1 << 20})), "a large tensor lies where the other rank can read it");
}

void large_tensors_are_libtorchs(const World& world) {
  torch::Tensor large = torch::ones({1 << 20});
  require(!lies_in_shared_memory(large), "a large tensor comes from malloc");
  all_reduce(large);
  require(large.eq(world.size()).all().item<bool>(), "and is reduced all the same");
}

// Joined, then forgotten: each rank trains by itself, and the program ends well.
void nothing_averaged(const World&) {
  auto net = seeded<TwoLayers>();
  for (int step = 0; step < 12; ++step) net->forward(torch::ones({2, 4})).sum().backward();
}

}  // namespace

std::vector<Case> last_cases() {
  return {{"killed_in_the_first_backward", killed_in_the_first_backward},
          {"killed_later", killed_later},
          {"killed_in_a_pipeline", killed_in_a_pipeline},
          {"pipeline_killed", pipeline_killed},
          {"thrown_in_the_first_backward", thrown_in_the_first_backward},
          {"thrown_later", thrown_later},
          {"again", again},
          {"large_tensors_are_shared", large_tensors_are_shared},
          {"large_tensors_are_libtorchs", large_tensors_are_libtorchs},
          {"nothing_averaged", nothing_averaged}};
}

}  // namespace trireme::test
