// A model that is split over the ranks trains as one process does, and says so when it is used wrongly.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cases.h"
#include "sharded_models.h"
#include "whole_model.h"

namespace trireme::test {
namespace {

constexpr int kBatchRows = 24;

struct Batch {
  torch::Tensor image, words, label;
  Batch(const World& world, int step)
      : image(input(world, {kBatchRows, 1, 8, 8}, step).to(torch::kDouble)),
        words(torch::randint(30, {kBatchRows, 5}, torch::kLong).to(world.device())),
        label(torch::randint(30, {kBatchRows}, torch::kLong).to(world.device())) {}
};

template <typename Model>
torch::Tensor loss_of(Model& model, const Batch& batch) {
  return torch::cross_entropy_loss(model.forward(batch.image, batch.words), batch.label);
}

Batch share_of(const Batch& whole, const Group& group) {
  Batch mine = whole;
  for (torch::Tensor* tensor : {&mine.image, &mine.words, &mine.label}) *tensor = share(*tensor, group);
  return mine;
}

using AnyOptimizer = std::unique_ptr<torch::optim::Optimizer>;
using MakeAny = std::function<AnyOptimizer(Tensors)>;

std::vector<MakeAny> every_optimizer() {
  namespace to = torch::optim;
  return {
      [](const Tensors& p) -> AnyOptimizer {
        return std::make_unique<to::SGD>(p, to::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
      },
      [](const Tensors& p) -> AnyOptimizer {
        return std::make_unique<to::Adam>(p, to::AdamOptions(1e-3).weight_decay(1e-3));
      },
      [](const Tensors& p) -> AnyOptimizer { return std::make_unique<to::RMSprop>(p, to::RMSpropOptions(1e-3)); },
      [](const Tensors& p) -> AnyOptimizer {
        return std::make_unique<optim::AdamW>(p, optim::AdamWOptions{.lr = 1e-3});
      },
      [](const Tensors& p) -> AnyOptimizer {
        return std::make_unique<optim::Momentum>(p, optim::MomentumOptions{.lr = 0.1});
      },
  };
}

// Runs 10 steps split and alone; after each the losses agree, after all the parameters, gradients and states.
void train_beside_one_process(const World& world, Shard shard, const MakeAny& make) {
  auto alone = seeded<Mixed>();
  alone->to(world.device(), torch::kDouble);
  auto net = seeded<Mixed>();
  net->to(torch::kDouble);
  ShardedDataParallel model(net, world, {.shard = shard, .unit_size = 1});
  require(model.sync()->unit_count() >= 3, "the model is in too few units");
  const AnyOptimizer mine = make(model.parameters()), whole = make(alone->parameters());
  for (int step = 0; step < 10; ++step) {
    const Batch batch(world, step);
    mine->zero_grad();
    whole->zero_grad();
    const torch::Tensor loss = loss_of(model, share_of(batch, world));
    loss.backward();
    const torch::Tensor norm = optim::clip_grad_norm(model.parameters(), 0.5);
    mine->step();

    const torch::Tensor expected = loss_of(*alone, batch);
    expected.backward();
    require_near(norm, optim::clip_grad_norm(alone->parameters(), 0.5), 1e-9, "norm of the gradients");
    whole->step();
    torch::Tensor together = loss.detach().clone();
    all_reduce(together, ReduceOp::avg, world);
    require_near(together, expected, 1e-9, fmt::format("loss of step {}", step));
  }
  require_like(world, whole_model({.model = *net, .optimizer = *mine}, net->named_parameters()),
               whole_model({.model = *alone, .optimizer = *whole}, alone->named_parameters()), 1e-8,
               fmt::format("stage {}", static_cast<int>(shard) + 1));
  const auto gathered = model.gathered();
  require_near(flat(*net), flat(*alone), 1e-8, "parameters");
  require_equal_everywhere(flat(*net), "parameters");
}

void sharded_equality(const World& world) {
  if (kBatchRows % world.size() != 0) return;  // shares of one size: the average of means is the mean
  std::vector<std::pair<Shard, MakeAny>> all;
  for (const MakeAny& make : every_optimizer())
    for (const Shard shard : kShards) all.emplace_back(shard, make);
  if (!all_layouts_wanted())
    all = {{Shard::optimizer, every_optimizer()[0]},
           {Shard::gradients, every_optimizer()[2]},
           {Shard::parameters, every_optimizer()[4]}};
  for (const auto& [shard, make] : all) train_beside_one_process(world, shard, make);
}

// Its steps come from products over all parameters, of which a rank has a part.
void sharded_lbfgs(const World& world) {
  auto net = seeded<Detour>();
  torch::optim::LBFGS whole(net->parameters(), torch::optim::LBFGSOptions(0.1));
  require(optim::complaint_about_parts(whole).empty(), "LBFGS is refused for a model that is not split");
  ShardedDataParallel model(net, world);
  torch::optim::LBFGS parts(model.parameters(), torch::optim::LBFGSOptions(0.1));
  for (const bool enabled : {true, false}) {
    optim::GradScaler scaler({.enabled = enabled});
    require_error([&] { scaler.step(parts); }, "UsageError", {"LBFGS", "only a part", "AdamW"});
  }
}

// Gradients of backwards under no_sync() add up, also those of layers that the last backward does not reach.
void sharded_accumulation(const World& world) {
  for (const Shard shard : kShards) {
    auto alone = seeded<Detour>(), net = seeded<Detour>();
    alone->to(world.device());
    ShardedDataParallel model(net, world, {.shard = shard});
    torch::optim::SGD mine(model.parameters(), 0.1), whole(alone->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      for (const bool last : {false, true}) {
        const torch::Tensor x = input(world, {4 * world.size(), 8}, step * 2 + (last ? 1 : 0));
        alone->through = net->through = !last;
        std::optional<NoSync> local;
        if (!last) local.emplace(model.no_sync());
        model(share(x, world)).square().mean().backward();
        alone->forward(x).square().mean().backward();
      }
      mine.step();
      mine.zero_grad();
      whole.step();
      whole.zero_grad();
    }
    const auto gathered = model.gathered();
    require_near(flat(*net), flat(*alone), 1e-5, "parameters");
  }
}

// A layer that no rank uses gets no gradient; one that some ranks use gets their average with zeros.
void sharded_unused(const World& world) {
  for (const Shard shard : {Shard::optimizer, Shard::gradients}) {
    auto net = seeded<Detour>();
    ShardedDataParallel model(net, world, {.shard = shard});
    const auto step = [&](bool through) {
      net->through = through;
      model(input(world, {4, 8}, 1)).sum().backward();
    };
    const auto& pieces = model.named_parameters();
    step(false);
    require(!pieces["middle.weight"].grad().defined(), "an unused layer has a gradient");
    require(pieces["last.weight"].grad().defined(), "a used layer has no gradient");
    for (const torch::Tensor& piece : model.parameters()) piece.mutable_grad().reset();
    step(world.rank() == 0);
    require(pieces["middle.weight"].grad().defined(), "a layer that rank 0 uses has no gradient");
    for (const torch::Tensor& piece : model.parameters()) piece.mutable_grad().reset();
    step(true);
    require(pieces["middle.weight"].grad().defined(), "a layer that is used later has no gradient");
  }
}

// What is written into gathered parameters stays, and requires_grad may change.
void sharded_writes(const World& world) {
  for (const Shard shard : kShards) {
    auto net = seeded<Detour>();
    ShardedDataParallel model(net, world, {.shard = shard});
    {
      const torch::NoGradGuard no_grad;
      const auto whole = model.gathered();
      net->last->weight.fill_(3);
    }
    model(input(world, {4, 8}, 1)).sum().backward();  // gathers, releases
    {
      const auto whole = model.gathered();
      require(net->last->weight.eq(3).all().item<bool>(), "what was written is lost");
    }
    for (const torch::Tensor& piece : model.parameters()) piece.mutable_grad().reset();
    net->first->weight.requires_grad_(false);
    model(input(world, {4, 8}, 1)).sum().backward();
    require(!model.named_parameters()["first.weight"].grad().defined(), "a frozen layer has a gradient");
    require(model.named_parameters()["last.weight"].grad().defined(), "a layer that is not frozen has none");
  }
}

// While all is whole one rank may look at the weights alone; the order of the next steps' gathers stays the same.
void sharded_one_rank_looks(const World& world) {
  auto net = seeded<Mixed>();
  net->to(torch::kDouble);
  ShardedDataParallel model(net, world, {.shard = Shard::parameters, .unit_size = 1});
  torch::optim::SGD sgd(model.parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    loss_of(model, Batch(world, step)).backward();
    sgd.step();
    sgd.zero_grad();
    const auto whole = model.gathered();
    if (world.rank() == 0)
      for (const torch::Tensor& parameter : model->parameters())
        require(parameter.isfinite().all().item<bool>(), "a weight is not finite");
  }
}

// Recompute and an evaluation in between use the parameters out of order.
void sharded_recompute(const World& world) {
  for (const Shard shard : kShards) {
    auto alone = seeded<Detour>(), net = seeded<Detour>();
    alone->to(world.device());
    ShardedDataParallel model(net, world, {.shard = shard});
    torch::optim::SGD mine(model.parameters(), 0.1), whole(alone->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      const torch::Tensor x = input(world, {4 * world.size(), 8}, step);
      checkpoint([&](const torch::Tensor& in) { return model(in); }, share(x, world).requires_grad_())
          .square()
          .mean()
          .backward();
      alone->forward(x).square().mean().backward();
      mine.step();
      mine.zero_grad();
      whole.step();
      whole.zero_grad();
      const torch::NoGradGuard no_grad;
      require_near(model(x), alone->forward(x), 1e-5, "an evaluation");
    }
  }
}

// Memory comes and goes: between the steps a rank holds its shard alone.
void sharded_memory(const World& world) {
  auto net = seeded<Detour>();
  ShardedDataParallel model(net, world, {.shard = Shard::parameters});
  const auto held = [&] { return net->first->weight.storage().data() != nullptr; };
  require(!held(), "parameters have memory before their use");
  const torch::Tensor loss = model(input(world, {4, 8}, 1)).sum();
  require(held(), "parameters have no memory after their use");
  loss.backward();
  require(!held(), "parameters have memory after the backward");
  require(!net->first->weight.grad().defined(), "whole gradients are kept");
}

// Three steps of a model that is split in one way, or not at all.
struct Trained {
  World world;
  std::shared_ptr<Detour> net = seeded<Detour>();
  std::optional<ShardedDataParallel<std::shared_ptr<Detour>>> sharded;
  std::optional<DataParallel<std::shared_ptr<Detour>>> plain;
  std::optional<torch::optim::Adam> adam;
  std::optional<train::Step> step;

  Trained(const World& ranks, std::optional<Shard> shard) : world(ranks) {
    net->to(torch::kDouble);
    if (shard)
      sharded.emplace(net, world, ShardedOptions{.shard = *shard});
    else
      plain.emplace(net, world);
    adam.emplace(shard ? sharded->parameters() : plain->parameters(), 0.01);
    const train::StepOptions options{.clip_norm = 0.5};
    if (shard)
      step.emplace(*sharded, *adam, options);
    else
      step.emplace(*plain, *adam, options);
  }
  void run(int from, int to) {
    for (int i = from; i < to; ++i)
      (*step)([&] { return net->forward(input(world, {4, 8}, i).to(torch::kDouble)).square().mean(); });
  }
  torch::Tensor weights() {
    std::optional<GatheredParameters> whole;
    if (sharded) whole.emplace(sharded->gathered());
    return flat(*net).cpu();
  }
};

std::vector<std::optional<Shard>> every_split() {
  return {std::nullopt, Shard::optimizer, Shard::gradients, Shard::parameters};
}

// Saved in one layout, it goes on in any other with the same bits.
void sharded_checkpoint(const World& world) {
  const std::string folder = broadcast_object(fmt::format("sharded_checkpoint.{}", getpid()), 0, world);
  for (const auto& from : every_split()) {
    Trained first(world, from);
    first.run(0, 3);
    { Checkpoint(folder, world).save(first.step->state(), {.step = 3}); }
    const torch::Tensor saved = first.weights();
    first.run(3, 6);
    for (const auto& to : every_split()) {
      Trained second(world, to);
      second.run(0, 1);
      Checkpoint(folder, world).restore(second.step->state());
      require(second.weights().equal(saved), "other weights than were saved");
      second.run(3, 6);
      require_near(second.weights(), first.weights(), 1e-13, "three steps after the checkpoint");
    }
    barrier(world);
    if (world.rank() == 0) std::filesystem::remove_all(folder);
  }
}

// The same with other numbers of ranks: every rank sees the same batches, so all of them train alike.
std::string file_folder() {
  const char* folder = std::getenv("TRIREME_TEST_FOLDER");
  require(folder != nullptr, "TRIREME_TEST_FOLDER is not set");
  return folder;
}

void sharded_save(const World& world) {
  Trained model(world, Shard::parameters);
  model.run(0, 3);
  { Checkpoint(file_folder(), world).save(model.step->state(), {.step = 3}); }
  model.run(3, 6);
  const torch::Tensor weights = model.weights();
  if (world.rank() == 0) torch::save(weights, file_folder() + "/expected.pt");
}

void sharded_load(const World& world) {
  torch::Tensor expected;
  torch::load(expected, file_folder() + "/expected.pt");
  for (const auto& split : every_split()) {
    Trained model(world, split);
    Checkpoint(file_folder(), world).restore(model.step->state());
    model.run(3, 6);
    require_near(model.weights(), expected, 1e-13, "three steps after a checkpoint of another number of ranks");
  }
}

void sharded_step_refuses(const World& world) {
  auto net = seeded<Detour>();
  ShardedDataParallel model(net, world);
  torch::optim::SGD wrong(model->parameters(), 0.1), sgd(model.parameters(), 0.1);
  require_error([&] { train::Step(model, wrong); }, "UsageError", {"make the optimizer from model.parameters()"});
  require_error([&] { train::Step(model, sgd, {.amp = {.level = AmpLevel::O2}}); }, "UsageError",
                {"level O2", "give ShardedDataParallel a param_dtype"});
}

// Clipping changes gradients, but does not use them.
void sharded_wrong_optimizer(const World& world) {
  for (const Shard shard : kShards)
    for (const bool clips : {false, true}) {
      auto net = seeded<Detour>();
      ShardedDataParallel model(net, world, {.shard = shard});
      torch::optim::SGD wrong(model->parameters(), 0.1);
      const auto step = [&] {
        model(input(world, {4, 8}, 1)).sum().backward();
        if (clips) optim::clip_grad_norm(model.parameters(), 0.1);
        wrong.step();
        wrong.zero_grad();
      };
      step();
      require_error(step, "UsageError",
                    {"used by no optimizer", "parameter first.", "model.parameters(), not from model->parameters()"});
    }
}

void sharded_not_cleared(const World& world) {
  for (const bool clips : {false, true}) {
    auto net = seeded<Detour>();
    ShardedDataParallel model(net, world);
    torch::optim::SGD sgd(model.parameters(), 0.1);
    const auto step = [&] {
      model->zero_grad();
      model(input(world, {4, 8}, 1)).sum().backward();
      if (clips) optim::clip_grad_norm(model.parameters(), 0.1);
      sgd.step();
    };
    step();
    require_error(step, "UsageError", {"were not cleared", "parameter first.", "zero_grad() of the optimizer"});
  }
}

// A gradient of 0 is as good as none.
void sharded_cleared_by_zeros(const World& world) {
  auto net = seeded<Detour>();
  ShardedDataParallel model(net, world);
  torch::optim::SGD sgd(model.parameters(), 0.1);
  for (int i = 0; i < 3; ++i) {
    model(input(world, {4, 8}, i)).sum().backward();
    sgd.step();
    sgd.zero_grad(/*set_to_none=*/false);
  }
}

void sharded_dropped_gradients(const World& world) {
  for (const Shard shard : kShards) {
    auto net = seeded<Detour>(), other = seeded<Detour>();
    ShardedDataParallel model(net, world, {.shard = shard}), undisturbed(other, world, {.shard = shard});
    {
      const NoSync local = model.no_sync();
      model(input(world, {4, 8}, 7)).sum().backward();
    }
    model.zero_grad();
    model(input(world, {4, 8}, 1)).sum().backward();
    undisturbed(input(world, {4, 8}, 1)).sum().backward();
    const Tensors got = model.parameters(), expected = undisturbed.parameters();
    for (size_t i = 0; i < got.size(); ++i)
      require(got[i].grad().equal(expected[i].grad()), "a gradient that was dropped has come back");
  }
}

void sharded_different_settings(const World& world) {
  torch::nn::Linear embed(8, 8), head(8, 8);
  head->weight.set_data(embed->weight.data());
  torch::nn::Sequential tied(embed, head);
  require_error([&] { static_cast<void>(ShardedDataParallel(tied, world)); }, "UsageError",
                {"0.weight and 1.weight", "share memory"});
  if (world.size() == 1) return;
  const int other = world.rank() == 1 ? 1 : 0;
  require_error([&] { static_cast<void>(ShardedDataParallel(seeded<Detour>(), world, {.unit_size = 25 + other})); },
                "UsageError", {"rank 0 has", "unit_size = 25", "rank 1 has", "unit_size = 26"});
  require_error(
      [&] {
        static_cast<void>(
            ShardedDataParallel(seeded<Detour>(), world, {.param_dtype = other ? torch::kHalf : torch::kBFloat16}));
      },
      "UsageError", {"BFloat16", "Half"});
  require_error(
      [&] { static_cast<void>(DataParallel(seeded<Detour>(), world, {.find_unused_parameters = other == 1})); },
      "UsageError", {"DataParallel: rank 0 has", "find_unused_parameters = false", "find_unused_parameters = true"});
  require_error(
      [&] {
        Mesh(world, {{"a", other ? 1 : -1}, {"b", other ? -1 : 1}});
      },
      "UsageError", {"Mesh: rank 0 has axes", "rank 1 has axes"});
  auto image = std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(3, 4, 3));
  if (other) image->weight.set_data(image->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  require_error([&] { static_cast<void>(ShardedDataParallel(image, world)); }, "UsageError",
                {"ShardedDataParallel: the ranks have different models", "with strides"});
}

void sharded_frozen_on_one_rank(const World& world) {
  if (world.size() == 1) return;
  for (const Shard shard : kShards) {
    auto net = seeded<Detour>();
    ShardedDataParallel model(net, world, {.shard = shard});
    model(input(world, {4, 8}, 1)).sum().backward();
    model.zero_grad();
    if (world.rank() == 0) net->first->weight.requires_grad_(false);
    const torch::Tensor loss = model(input(world, {4, 8}, 1)).sum();
    require_error([&] { loss.backward(); }, "UsageError", {"is not like this rank's any more", "requires_grad"});
  }
}

void sharded_torch_clipping(const World& world) {
  auto net = seeded<Detour>();
  ShardedDataParallel model(net, world, {.shard = Shard::gradients});
  model(input(world, {4, 8}, 1)).sum().backward();
  torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
  require_error(
      [&] {
        model(input(world, {4, 8}, 1));
      },
      "UsageError", {"sees only this rank's part", "optim::clip_grad_norm"});
}

// clip_grad_norm() finds the gradients of the pieces, whichever parameters it is given.
void sharded_clipping_by_the_module(const World& world) {
  auto net = seeded<Detour>();
  ShardedDataParallel model(net, world);
  model(input(world, {4, 8}, 1)).sum().backward();
  const torch::Tensor norm = optim::grad_norm(model.parameters());
  require(norm.item<double>() > 0, "no gradients");
  require_near(optim::grad_norm(model->parameters()), norm, 1e-6, "the norm by the module's parameters");
}

// A step between forward and backward spoils what forward has kept: as in one process, autograd says so.
void sharded_step_before_backward(const World& world) {
  for (const Shard shard : kShards) {
    auto net = seeded<Detour>();
    ShardedDataParallel model(net, world, {.shard = shard});
    torch::optim::SGD sgd(model.parameters(), 0.1);
    model(input(world, {4, 8}, 1)).sum().backward();
    const torch::Tensor loss = model(input(world, {4, 8}, 2)).square().sum();
    sgd.step();
    sgd.zero_grad();
    require_error([&] { loss.backward(); }, "exception", {"modified by an inplace operation"});
  }
}

void sharded_step_while_gathered(const World& world) {
  auto net = seeded<Detour>();
  ShardedDataParallel model(net, world, {.shard = Shard::parameters});
  torch::optim::SGD sgd(model.parameters(), 0.1);
  const auto whole = model.gathered();
  model(input(world, {4, 8}, 1)).sum().backward();
  sgd.step();
  require_error([&] { model(input(world, {4, 8}, 1)); }, "UsageError", {"while `gathered()` lives"});
}

void sharded_restore_while_gathered(const World& world) {
  const std::string folder = broadcast_object(fmt::format("sharded_restore.{}", getpid()), 0, world);
  for (const Shard shard : kShards) {
    ShardedDataParallel model(seeded<Detour>(), world, {.shard = shard});
    const TrainingState state{.model = model};
    Checkpoint checkpoint(folder, world);
    checkpoint.save(state, {.step = 1});
    const auto restore = [&] { checkpoint.restore(state); };
    {
      const auto whole = model.gathered();
      require_error(restore, "UsageError", {"restored while `gathered()` lives"});
    }
    restore();
    model(input(world, {4, 8}, 1)).sum().backward();
    barrier(world);
    if (world.rank() == 0) std::filesystem::remove_all(folder);
  }
}

// torch::load() gives the parameters other memory, of the same type.
void sharded_loaded_behind_its_back(const World& world) {
  for (const Shard shard : kShards) {
    std::stringstream file;
    torch::save(seeded<Detour>(), file);
    auto net = seeded<Detour>();
    ShardedDataParallel model(net, world, {.shard = shard});
    torch::load(net, file);
    net->to(world.device());
    const torch::Tensor loss = model(input(world, {4, 8}, 1)).sum();
    require_error([&] { loss.backward(); }, "UsageError", {"has got other memory", "since the model was wrapped"});
  }
}

void sharded_changed_model(const World& world) {
  auto net = seeded<Detour>();
  ShardedDataParallel model(net, world);
  const torch::Tensor loss = model(input(world, {4, 8}, 1)).sum();
  net->to(torch::kDouble);
  require_error([&] { loss.backward(); }, "UsageError", {"first.weight", "since the model was wrapped"});
}

// Each rank uses another layer. If both are of one size, a gather would give them each other's weights.
void sharded_other_layers(const World& world) {
  if (world.size() == 1) return;
  for (const int64_t width : {600, 700}) {
    const auto layer = [](int64_t out) { return torch::nn::Linear(torch::nn::LinearOptions(600, out).bias(false)); };
    torch::nn::Sequential two(layer(600), layer(width));
    ShardedDataParallel model(two, world, {.shard = Shard::parameters, .unit_size = 1});
    const size_t mine = world.rank() == 0 ? 0 : 1;
    require(two[mine]->as<torch::nn::Linear>()->weight.sum().isnan().item<bool>(),
            "a layer of another rank passes for this one");
    require_error(
        [&] {
          model(input(world, {4, 600}, 1));
        },
        "UsageError",
        {fmt::format("rank {} is about to use parameter {}.weight", world.rank(), mine), "the same layers"});
  }
}

}  // namespace

std::vector<Case> sharded_cases() {
  return {{"sharded_equality", sharded_equality},
          {"sharded_lbfgs", sharded_lbfgs},
          {"sharded_accumulation", sharded_accumulation},
          {"sharded_unused", sharded_unused},
          {"sharded_writes", sharded_writes},
          {"sharded_one_rank_looks", sharded_one_rank_looks},
          {"sharded_recompute", sharded_recompute},
          {"sharded_memory", sharded_memory},
          {"sharded_checkpoint", sharded_checkpoint},
          {"sharded_restore_while_gathered", sharded_restore_while_gathered},
          {"sharded_step_refuses", sharded_step_refuses},
          {"sharded_wrong_optimizer", sharded_wrong_optimizer},
          {"sharded_not_cleared", sharded_not_cleared},
          {"sharded_cleared_by_zeros", sharded_cleared_by_zeros},
          {"sharded_dropped_gradients", sharded_dropped_gradients},
          {"sharded_different_settings", sharded_different_settings},
          {"sharded_frozen_on_one_rank", sharded_frozen_on_one_rank},
          {"sharded_torch_clipping", sharded_torch_clipping},
          {"sharded_clipping_by_the_module", sharded_clipping_by_the_module},
          {"sharded_step_before_backward", sharded_step_before_backward},
          {"sharded_step_while_gathered", sharded_step_while_gathered},
          {"sharded_loaded_behind_its_back", sharded_loaded_behind_its_back},
          {"sharded_changed_model", sharded_changed_model},
          {"sharded_other_layers", sharded_other_layers}};
}

std::vector<Case> sharded_file_cases() {
  return {{"sharded_save", sharded_save}, {"sharded_load", sharded_load}};
}

}  // namespace trireme::test
