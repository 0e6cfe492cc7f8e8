// Cases of ShardedDataParallel that need a world of their own: they count memory, run under a limit, or lose a rank.
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "../support/allocation_counter.h"
#include "../support/gpt_stack.h"
#include "cases.h"
#include "sharded_models.h"

namespace trireme::test {
namespace {

Shard shard_named(const std::string& name) {
  return name == "optimizer" ? Shard::optimizer : name == "gradients" ? Shard::gradients : Shard::parameters;
}

// --- memory

void train_stack(const World& world, const GptShape& shape, const ShardedOptions& options, int steps,
                 const std::function<void(int64_t parameters)>& after_wrapping) {
  auto net = std::make_shared<GptStack>(shape);
  const int64_t parameters = net->parameter_count();
  ShardedDataParallel model(net, world, options);
  torch::optim::Adam adam(model.parameters(), 1e-3);
  after_wrapping(parameters);
  for (int step = 0; step < steps; ++step) {
    const torch::Tensor tokens = gpt_tokens(shape, 1, step);
    gpt_loss(model(tokens.narrow(1, 0, shape.length)), tokens).backward();
    adam.step();
    adam.zero_grad();
  }
}

// docs/hybrid.md, with Adam in float. In units: the weights of three, the gradients of four.
int64_t promised_bytes(Shard shard, int64_t parameters, int64_t ranks, int64_t unit) {
  const int64_t split = parameters / ranks;
  if (shard == Shard::optimizer) return 8 * parameters + 12 * split;
  if (shard == Shard::gradients) return 4 * parameters + 12 * split + 4 * unit;
  return 16 * split + 7 * unit;
}

void sharded_peak(const World& world) {
  constexpr int kUnit = 4;  // MB: the largest parameter
  const GptShape shape{.width = 512, .layers = 16, .heads = 4, .words = 256, .length = 16};  // 50 million parameters
  AllocationCounter& counter = count_allocations();
  for (const Shard shard : kShards) {
    int64_t before = counter.bytes(), promised = 0;
    train_stack(world, shape, {.shard = shard, .unit_size = kUnit}, 3, [&](int64_t parameters) {
      promised = promised_bytes(shard, parameters, world.size(), kUnit << 20);
      counter.start_peak();
    });
    const int64_t peak = counter.peak() - before;
    require(std::abs(peak - promised) <= promised / 10,
            fmt::format("a peak of {} bytes with stage {}; the formula says {}", peak, static_cast<int>(shard) + 1,
                        promised));
  }
}

// A checkpoint brings the tensors together one at a time: a rank needs the memory of a few, not of the whole model. The
// rank that writes in the background keeps all of it, and the rank that reads has all of it. A restore needs this rank's
// part as it was, in case it fails, the new one, and the states that the optimizer makes of that.
void sharded_checkpoint_peak(const World& world) {
  constexpr int64_t kLargest = 4 << 20;  // bytes of a parameter
  const GptShape shape{.width = 512, .layers = 4, .heads = 4, .words = 256, .length = 16};
  AllocationCounter& counter = count_allocations();
  auto net = std::make_shared<GptStack>(shape);
  const int64_t parameters = net->parameter_count();
  ShardedDataParallel model(net, world, {.shard = Shard::parameters, .unit_size = 4});
  torch::optim::Adam adam(model.parameters(), 1e-3);
  const auto train = [&](int step) {
    const torch::Tensor tokens = gpt_tokens(shape, 1, step);
    gpt_loss(model(tokens.narrow(1, 0, shape.length)), tokens).backward();
    adam.step();
    adam.zero_grad();
  };
  train(0);
  const TrainingState state{.model = model, .optimizer = adam};
  for (const bool async : {false, true}) {
    Checkpoint checkpoint(setting("TRIREME_TEST_FOLDER"), world, {.async = async});
    counter.start_peak();
    const int64_t before = counter.bytes();
    checkpoint.save(state, {.step = async ? 2 : 1});
    const int64_t extra = counter.peak() - before;
    const int64_t copy = async && world.rank() == 0 ? 12 * parameters : 0;
    require(extra <= copy + 4 * kLargest,
            fmt::format("saving takes {} bytes beside the model of {}; {} are expected at most", extra, 4 * parameters,
                        copy + 4 * kLargest));
    checkpoint.wait();
    counter.start_peak();
    checkpoint.restore(state);
    const int64_t restored = counter.peak() - before;
    const int64_t parts = (12 + 12 + 8) * parameters / world.size();
    require(world.rank() == 0 || restored <= parts + 4 * kLargest,
            fmt::format("restoring takes {} bytes; {} are expected at most", restored, parts + 4 * kLargest));
  }
}

// Under a limit that is too low for one process: each rank joins its own control group, TRIREME_TEST_CGROUP.RANK.
void sharded_under_a_limit(const World& world) {
  std::ofstream(fmt::format("{}.{}/cgroup.procs", setting("TRIREME_TEST_CGROUP"), world.rank())) << ::getpid();
  const GptShape shape{.width = 512, .layers = 10, .heads = 4, .words = 256, .length = 16};
  train_stack(world, shape, {.shard = Shard::parameters, .unit_size = 4}, 2, [](int64_t) {});
}

// --- a killed rank

// Layers of more than 1 MB, so that each is a unit.
struct Deep : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(first(x));
    if (in_forward) in_forward();
    x = torch::tanh(middle(x));
    if (in_backward && x.requires_grad()) x.register_hook([f = in_backward](const torch::Tensor&) { f(); });
    return last(x);
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(400, 400));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(400, 400));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(400, 400));
  std::function<void()> in_forward;
  std::function<void()> in_backward;  // when `last` has its gradients
};

constexpr int kSteps = 6;

// Trains to step 6 and saves after steps 2 and 4, from the newest checkpoint of TRIREME_TEST_FOLDER if there is one. In
// step 5, or in the second save, rank TRIREME_TEST_VICTIM dies in TRIREME_TEST_PHASE. Every rank sees the same batches.
class Run {
 public:
  explicit Run(const World& world) : world_(world), model_(net_, world, options()) {
    net_->to(world.device());
    if (std::stoi(setting("TRIREME_TEST_VICTIM")) == world.rank()) phase_ = setting("TRIREME_TEST_PHASE");
  }

  void train() {
    Checkpoint checkpoint(folder_, world_);
    TrainingState state = step_.state();
    state.extra.emplace_back(
        "victim", [this] { return die_if("save", now_ == 4), std::string(); }, [](const std::string&) {});
    now_ = static_cast<int>(checkpoint.restore(state).step);
    while (now_ < kSteps) {
      take_step();
      ++now_;
      if (now_ == 2 || now_ == 4) checkpoint.save(state, {.step = now_});
    }
    checkpoint.wait();
  }

  torch::Tensor weights() {
    const auto whole = model_.gathered();
    return flat(*net_).cpu();
  }

 private:
  static ShardedOptions options() { return {.shard = shard_named(setting("TRIREME_TEST_SHARD")), .unit_size = 1}; }
  static std::shared_ptr<Deep> made() {
    auto net = seeded<Deep>();
    net->to(torch::kDouble);
    return net;
  }

  void take_step() {
    const bool fatal = now_ == kSteps - 1;
    net_->in_forward = [this, fatal] { die_if("forward", fatal); };
    net_->in_backward = [this, fatal] { die_if("backward", fatal); };
    const auto hook =
        net_->first->weight.register_hook([this, fatal](const torch::Tensor&) { die_if("reduce", fatal); });
    step_([&] { return net_->forward(input(world_, {4, 400}, now_).to(torch::kDouble)).square().mean(); });
    net_->first->weight.remove_hook(hook);
  }

  void die_if(std::string_view phase, bool fatal) {
    if (phase != phase_ || !fatal) return;
    std::ofstream(folder_ + ".died") << phase;
    ::raise(SIGKILL);
  }

  World world_;
  std::string folder_ = setting("TRIREME_TEST_FOLDER");
  std::string phase_;  // empty: lives
  int now_ = 0;
  std::shared_ptr<Deep> net_ = made();
  ShardedDataParallel<std::shared_ptr<Deep>> model_;
  torch::optim::Adam adam_{model_.parameters(), 1e-3};
  train::Step step_{model_, adam_, train::StepOptions{.clip_norm = 0.5, .before_update = [this] {
                                                        die_if("step", now_ == kSteps - 1);
                                                      }}};
};

// Trains, and compares the weights with those of a run that nothing has disturbed; the first run leaves them.
void sharded_killed(const World& world) {
  Run run(world);
  run.train();
  const torch::Tensor weights = run.weights();
  const std::string file = setting("TRIREME_TEST_EXPECTED");
  if (std::ifstream(file).good()) {
    torch::Tensor expected;
    torch::load(expected, file);
    require_near(weights, expected, 1e-12, "weights after a killed rank and a resume");
  } else {
    barrier(world);  // all have looked
    if (world.rank() == 0) torch::save(weights, file);
  }
}

}  // namespace

std::vector<Case> sharded_alone_cases() {
  return {{"sharded_peak", sharded_peak},
          {"sharded_checkpoint_peak", sharded_checkpoint_peak},
          {"sharded_under_a_limit", sharded_under_a_limit},
          {"sharded_killed", sharded_killed}};
}

}  // namespace trireme::test
