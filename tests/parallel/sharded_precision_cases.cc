// A model that is split over the ranks trains in mixed precision as one process does, keeps averages of its pieces, and
// saves masters and averages whole. Every rank sees the same batches, so that the average of the gradients is exact.
#include <unistd.h>

#include <filesystem>

#include "cases.h"
#include "sharded_models.h"

namespace trireme::test {
namespace {

struct Normed : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(norm(first(x)))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 24));
  torch::nn::LayerNorm norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({24})));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(24, 4));
};

enum class Way {
  plain,          // DataParallel, or one process
  lowered,        // ShardedDataParallel of a model in low precision; Step makes masters of its pieces
  gathered,       // param_dtype: the pieces are masters
  float_reduced,  // and gradients are averaged in float
};
constexpr Way kSplitWays[] = {Way::lowered, Way::gathered, Way::float_reduced};

struct LowLayout {
  Way way = Way::plain;
  Shard shard = Shard::optimizer;
  c10::ScalarType type = torch::kBFloat16;
};

// Level O2 with clipping and an average of the weights.
struct LowTrained {
  World world;
  std::shared_ptr<Normed> net = seeded<Normed>();
  std::optional<ShardedDataParallel<std::shared_ptr<Normed>>> sharded;
  std::optional<torch::optim::Adam> adam;
  std::optional<train::Step> step;

  LowTrained(const World& ranks, const LowLayout& layout) : world(ranks) {
    net->to(world.device());
    optim::lower_precision(*net, layout.type);
    if (layout.way == Way::gathered || layout.way == Way::float_reduced) optim::raise_precision(*net);  // rounded
    if (layout.way != Way::plain) sharded.emplace(net, world, options_of(layout));
    adam.emplace(sharded ? sharded->parameters() : net->parameters(), 0.01);
    const train::StepOptions options{
        .amp = {.level = AmpLevel::O2, .dtype = layout.type}, .clip_norm = 0.5, .ema_decay = 0.9};
    if (sharded)
      step.emplace(*sharded, *adam, options);
    else
      step.emplace(net, *adam, options);
  }
  static ShardedOptions options_of(const LowLayout& layout) {
    ShardedOptions options{.shard = layout.shard};
    if (layout.way != Way::lowered) options.param_dtype = layout.type;
    if (layout.way == Way::float_reduced) options.reduce_dtype = torch::kFloat;
    return options;
  }
  void run(int from, int to) {
    for (int i = from; i < to; ++i)
      (*step)([&] { return net->forward(input(world, {4, 8}, i)).to(torch::kFloat).square().mean(); });
  }
  static torch::Tensor joined(const io::TensorMap& tensors) {
    Tensors parts;
    for (const torch::Tensor& tensor : tensors.values()) parts.push_back(tensor.detach().reshape(-1).cpu());
    return torch::cat(parts);
  }
  torch::Tensor masters() { return joined(detail::made(detail::WholeState(step->state()).masters())); }
  torch::Tensor averages() { return joined(detail::made(detail::WholeState(step->state()).averages())); }
};

bool averages_are_exact(const World& world) {
  return (world.size() & (world.size() - 1)) == 0;
}

void sharded_low_precision(const World& world) {
  const double near = averages_are_exact(world) ? 1e-5 : 0.02;
  for (const c10::ScalarType type : {torch::kBFloat16, torch::kHalf}) {
    LowTrained alone(world, {.type = type});
    alone.run(0, 6);
    require(alone.step->update() == train::Update::done, "no step was done");
    for (const Shard shard : kShards)
      for (const Way way : kSplitWays) {
        LowTrained split(world, {way, shard, type});
        require(split.net->first->weight.scalar_type() == type, "parameters are not in low precision");
        require(split.net->norm->weight.scalar_type() == torch::kFloat, "a normalisation is in low precision");
        split.run(0, 6);
        require_near(split.masters(), alone.masters(), near, "masters");
        // Pieces of all digits give averages of all digits, one process averages what it has rounded.
        require_near(split.averages(), alone.averages(), way == Way::lowered ? near : 0.02, "averages");
      }
  }
}

// Whichever layout has saved masters and averages, every other goes on with them.
void sharded_low_precision_checkpoint(const World& world) {
  const std::string folder = broadcast_object(fmt::format("sharded_low_precision.{}", getpid()), 0, world);
  const std::vector<LowLayout> layouts = {{Way::plain},
                                          {Way::lowered, Shard::optimizer},
                                          {Way::lowered, Shard::parameters},
                                          {Way::gathered, Shard::gradients},
                                          {Way::gathered, Shard::parameters}};
  for (const LowLayout& from : layouts) {
    LowTrained first(world, from);
    first.run(0, 3);
    { Checkpoint(folder, world).save(first.step->state(), {.step = 3}); }
    const torch::Tensor masters = first.masters(), averages = first.averages();
    first.run(3, 6);
    for (const LowLayout& to : layouts) {
      LowTrained second(world, to);
      second.run(0, 1);
      Checkpoint(folder, world).restore(second.step->state());
      require(second.masters().equal(masters), "other masters than were saved");
      require(second.averages().equal(averages), "other averages than were saved");
      second.run(3, 6);
      require_near(second.masters(), first.masters(), averages_are_exact(world) ? 1e-6 : 0.02,
                   "three steps after the checkpoint");
    }
    barrier(world);
    if (world.rank() == 0) std::filesystem::remove_all(folder);
  }
}

// A loop without Step, and its checkpoint without masters: the pieces' digits are what is saved and restored.
void sharded_low_precision_digits(const World& world) {
  const std::string folder = broadcast_object(fmt::format("sharded_digits.{}", getpid()), 0, world);
  for (const Shard shard : kShards) {
    auto net = seeded<Normed>();
    ShardedDataParallel model(net, world, {.shard = shard, .param_dtype = torch::kBFloat16});
    torch::optim::Adam adam(model.parameters(), 1e-4);  // steps that bf16 would lose
    const auto step = [&](int seed) {
      torch::Tensor loss;
      {
        const optim::Autocast low({.device = world.device().type(), .dtype = torch::kBFloat16});
        loss = model(input(world, {4, 8}, seed)).to(torch::kFloat).square().mean();
      }
      loss.backward();
      adam.step();
      adam.zero_grad();
    };
    const auto pieces = [&] {
      Tensors parts;
      for (const torch::Tensor& piece : model.parameters()) parts.push_back(piece.detach().cpu());
      return torch::cat(parts).clone();
    };
    for (int i = 0; i < 3; ++i) step(i);
    const torch::Tensor saved = pieces();
    require(world.size() > 4 || !saved.to(torch::kBFloat16).to(torch::kFloat).equal(saved), "pieces are rounded");
    { const auto whole = model.gathered(); }
    require(pieces().equal(saved), "gathering has changed pieces");
    const TrainingState state{.model = model, .optimizer = adam};
    { Checkpoint(folder, world).save(state, {.step = 3}); }
    for (int i = 3; i < 6; ++i) step(i);
    const torch::Tensor expected = pieces();
    Checkpoint(folder, world).restore(state);
    require(pieces().equal(saved), "a checkpoint has rounded the pieces");
    for (int i = 3; i < 6; ++i) step(i);
    require_near(pieces(), expected, 0, "after the checkpoint");
    {
      const torch::NoGradGuard no_grad;
      const auto whole = model.gathered();
      net->first->bias.fill_(3);
    }
    const torch::Tensor written = model.named_parameters()["first.bias"];
    require(written.eq(3).all().item<bool>(), "what was written is lost");
    require(pieces().ne(expected).sum().item<int64_t>() <= written.numel(), "a write has changed other pieces");
    barrier(world);
    if (world.rank() == 0) std::filesystem::remove_all(folder);
  }
}

// What is written into gathered parameters becomes the masters', not the other way round.
void sharded_low_precision_writes(const World& world) {
  for (const Shard shard : kShards) {
    LowTrained split(world, {Way::lowered, shard});
    split.run(0, 1);
    {
      const torch::NoGradGuard no_grad;
      const auto whole = split.sharded->gathered();
      split.net->last->bias.fill_(100);
    }
    split.run(1, 2);
    const auto whole = split.sharded->gathered();
    require(split.net->last->bias.gt(90).all().item<bool>(), "the masters have overwritten what was loaded");
  }
}

// The model holds the averages while they are applied, on whichever ranks its pieces are.
void sharded_ema(const World& world) {
  const auto loss_of = [&](auto& model, int seed) { return model.forward(input(world, {4, 8}, seed)).square().mean(); };
  for (const Shard shard : kShards) {
    auto alone = seeded<Normed>(), net = seeded<Normed>();
    alone->to(world.device());
    ShardedDataParallel model(net, world, {.shard = shard});
    torch::optim::SGD mine(model.parameters(), 0.1), whole(alone->parameters(), 0.1);
    optim::Ema average(*net, {.decay = 0.5}), expected(*alone, {.decay = 0.5});
    for (int i = 0; i < 4; ++i) {
      loss_of(model, i).backward();
      loss_of(*alone, i).backward();
      for (torch::optim::Optimizer* one : {&mine, &whole}) {
        one->step();
        one->zero_grad();
      }
      average.update();
      expected.update();
      const torch::NoGradGuard no_grad;
      require_near(loss_of(model, 9), loss_of(*alone, 9), 1e-5, "loss of the weights");
      const auto here = average.apply();
      const auto there = expected.apply();
      require_near(loss_of(model, 9), loss_of(*alone, 9), 1e-5, "loss of the averages");
    }
  }
}

void sharded_precision_refuses(const World& world) {
  require_error(
      [&] { static_cast<void>(ShardedDataParallel(seeded<Normed>(), world, {.param_dtype = torch::kFloat})); },
      "UsageError", {"param_dtype is Float", "BFloat16 or Half"});
  require_error(
      [&] { static_cast<void>(ShardedDataParallel(seeded<Normed>(), world, {.reduce_dtype = torch::kLong})); },
      "UsageError", {"reduce_dtype is Long"});
  auto net = seeded<Normed>();
  ShardedDataParallel model(net, world, {.param_dtype = torch::kBFloat16});
  require_error([&] { optim::raise_precision(*net); }, "UsageError", {"first.weight is split", "save a Checkpoint"});
}

// Pieces, gradients and states are in host memory, wherever the model is; the numbers are the same.
void sharded_offload(const World& world) {
  for (const Shard shard : kShards)
    for (const bool low : {false, true}) {
      torch::Tensor weights[2];
      for (const bool offload : {false, true}) {
        auto net = seeded<Normed>();
        ShardedOptions options{.shard = shard, .offload = offload};
        if (low) options.param_dtype = torch::kBFloat16;
        ShardedDataParallel model(net, world, options);
        torch::optim::Adam adam(model.parameters(), 0.01);
        train::Step step(model, adam, {.amp = {.level = low ? AmpLevel::O2 : AmpLevel::O0}, .clip_norm = 0.5});
        for (int i = 0; i < 4; ++i)
          step([&] { return net->forward(input(world, {4, 8}, i)).to(torch::kFloat).square().mean(); });
        if (offload)
          for (const torch::Tensor& piece : model.parameters()) require(piece.is_cpu(), "a piece is not on the host");
        const auto whole = model.gathered();
        require(net->first->weight.device() == world.device(), "a parameter is not on the device");
        weights[offload ? 1 : 0] = flat(*net).cpu();
      }
      require_near(weights[1], weights[0], world.device().is_cpu() ? 0 : 1e-5, "weights with offload");
    }
}

}  // namespace

std::vector<Case> sharded_precision_cases() {
  return {{"sharded_low_precision", sharded_low_precision},
          {"sharded_low_precision_checkpoint", sharded_low_precision_checkpoint},
          {"sharded_low_precision_digits", sharded_low_precision_digits},
          {"sharded_low_precision_writes", sharded_low_precision_writes},
          {"sharded_ema", sharded_ema},
          {"sharded_precision_refuses", sharded_precision_refuses},
          {"sharded_offload", sharded_offload}};
}

}  // namespace trireme::test
