// Programs whose ranks would train apart without a word: each is right, or ends with an error on every rank.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cases.h"
#include "sharded_models.h"

namespace trireme::test {
namespace {

// Another batch on every rank.
torch::Tensor loss_on(Detour& net, const World& world, int step) {
  return net.forward(input(world, {4, 8}, 10 * step + world.rank())).square().mean();
}

void step_on(Detour& net, torch::optim::Optimizer& optimizer, const World& world, int step) {
  loss_on(net, world, step).backward();
  optimizer.step();
  optimizer.zero_grad();
}

std::string warnings_of(const std::function<void()>& run) {
  static std::string all;
  all.clear();
  const LogSink before = set_log_sink([](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) all.append(text).append("\n");
  });
  run();
  set_log_sink(before);
  return all;
}

// --- no_sync()

void no_sync_out_of_order(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  std::optional<NoSync> first(model.no_sync()), second(model.no_sync());
  first.reset();
  loss_on(*model.module(), world, 0).backward();
  model->zero_grad();
  second.reset();
  loss_on(*model.module(), world, 1).backward();
  require_equal_everywhere(model->first->weight.grad(), "the gradient after both guards");
}

// The guard lives one scope too long: every step is of this rank alone.
void no_sync_over_the_step(const World& world) {
  if (world.size() == 1) return;
  const auto refused = [&](auto make_optimizer) {
    DataParallel model(seeded<Detour>(), world);
    auto optimizer = make_optimizer(model->parameters());
    const NoSync local = model.no_sync();
    step_on(*model.module(), optimizer, world, 0);
    require_error([&] { step_on(*model.module(), optimizer, world, 1); }, "UsageError",
                  {"parameter first.weight", "no_sync()", "before the optimizer steps"});
  };
  refused([](const Tensors& all) { return torch::optim::SGD(all, 0.1); });
  refused([](const Tensors& all) { return torch::optim::Adam(all, 0.1); });
  refused([](const Tensors& all) { return optim::AdamW(all, optim::AdamWOptions{.lr = 0.1}); });
}

// Batches are added up while other weights are there for an evaluation.
void no_sync_around_an_evaluation(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  optim::Ema average(*model.module(), {.decay = 0.5});
  torch::optim::SGD sgd(model->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    for (int part = 0; part < 3; ++part) {
      std::optional<NoSync> local;
      if (part < 2) local.emplace(model.no_sync());
      loss_on(*model.module(), world, 3 * step + part).backward();
      if (world.rank() == 0) const auto averaged = average.apply();
    }
    sgd.step();
    sgd.zero_grad();
    average.update();
  }
  require_equal_everywhere(flat(*model.module()), "weights");
}

// An epoch ends in the middle of a group: its gradients are local, and the optimizer steps.
void no_sync_in_the_last_group(const World& world) {
  if (world.size() == 1) return;
  for (const int steps_before : {0, 2}) {
    DataParallel model(seeded<Detour>(), world);
    torch::optim::SGD sgd(model->parameters(), 0.1);
    for (int step = 0; step < steps_before; ++step) step_on(*model.module(), sgd, world, step);
    {
      const NoSync local = model.no_sync();
      step_on(*model.module(), sgd, world, 8);
    }
    require_error([&] { step_on(*model.module(), sgd, world, 9); }, "UsageError",
                  {"no_sync()", "parameter first.weight of rank 1 differs from that of rank 0"});
  }
}

// A change that is the same on all ranks must not count as a step of one of them.
void no_sync_then_the_same_change(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    {
      const NoSync local = model.no_sync();
      loss_on(*model.module(), world, step).backward();
    }
    model->zero_grad();
    {
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& parameter : model->parameters()) parameter.clamp_(-0.2, 0.2);
    }
    step_on(*model.module(), sgd, world, 10 + step);
  }
  require_equal_everywhere(flat(*model.module()), "weights that were clamped");
}

// Nothing is stepped, so nothing differs: split gradients wait for a backward that averages them.
void no_sync_for_ever(const World& world) {
  if (world.size() == 1) return;
  ShardedDataParallel split(seeded<Detour>(), world);
  DataParallel whole(seeded<Detour>(), world);
  const NoSync one = split.no_sync(), other = whole.no_sync();
  const std::string warnings = warnings_of([&] {
    for (int step = 0; step < 1100; ++step) {
      loss_on(*split.module(), world, step).backward();
      loss_on(*whole.module(), world, step).backward();
    }
  });
  require(std::count(warnings.begin(), warnings.end(), '\n') == 2, "not one warning of each model: " + warnings);
}

// A group is left, and rank 0 alone exchanges its weights for a moment: no rank may wait for the others because of that.
void no_sync_around_an_evaluation_of_one_rank(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  const auto local_backward = [&](int step) {
    const NoSync local = model.no_sync();
    loss_on(*model.module(), world, step).backward();
  };
  step_on(*model.module(), sgd, world, 0);
  local_backward(1);
  if (world.rank() == 0) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : model->parameters()) {
      const torch::Tensor kept = parameter.clone();
      parameter.add_(1);
      parameter.copy_(kept);
    }
  }
  sgd.zero_grad();
  local_backward(2);
  step_on(*model.module(), sgd, world, 3);
  require_equal_everywhere(flat(*model.module()), "weights after an evaluation of rank 0");
}

// Local SGD: the ranks differ on purpose, and the program brings them together.
void no_sync_with_steps_of_each_rank(const World& world) {
  DataParallel model(seeded<Detour>(), world, {.parameter_check_interval = 0});
  torch::optim::SGD sgd(model->parameters(), 0.1);
  const NoSync local = model.no_sync();
  for (int step = 0; step < 4; ++step) step_on(*model.module(), sgd, world, step);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : model->parameters()) all_reduce(parameter, ReduceOp::avg, world);
  require_equal_everywhere(flat(*model.module()), "weights that were averaged");
}

// --- split weights that are written or stepped on one rank alone

using Split = ShardedDataParallel<std::shared_ptr<Detour>>;

void sharded_written_on_one_rank(const World& world) {
  if (world.size() == 1) return;
  for (const Shard shard : kShards)
    for (const bool by_data : {false, true}) {
      Split model(seeded<Detour>(), world, {.shard = shard});
      {
        const auto whole = model.gathered();
        const torch::NoGradGuard no_grad;
        const torch::Tensor weight = model->last->weight;
        if (world.rank() == 0) (by_data ? torch::Tensor(weight.data()) : weight).fill_(1);
      }
      require_error(
          [&] {
            model(input(world, {4, 8}, 1));
          },
          "UsageError", {by_data ? "parameter " : "parameter last.weight", "written", "write the same on every rank"});
    }
}

// As weights are often set in C++: past the tensor's version.
void sharded_written_by_data(const World& world) {
  for (const Shard shard : kShards) {
    Split model(seeded<Detour>(), world, {.shard = shard});
    {
      const auto whole = model.gathered();
      model->last->weight.data().fill_(3);
    }
    model(input(world, {4, 8}, 1)).sum().backward();
    const auto whole = model.gathered();
    require(model->last->weight.eq(3).all().item<bool>(), "what was written is lost");
  }
}

// One of two parameters of a unit is written with its version, the other past it.
void sharded_written_in_two_ways(const World& world) {
  for (const Shard shard : kShards)
    for (const bool data_first : {false, true}) {
      Split model(seeded<Detour>(), world, {.shard = shard});
      require(model.sync()->unit_count() == 1, "the parameters are in several units");
      {
        const torch::NoGradGuard no_grad;
        const auto whole = model.gathered();
        if (data_first) model->last->weight.data().fill_(3);
        model->first->weight.fill_(2);
        if (!data_first) model->last->weight.data().fill_(3);
      }
      model(input(world, {4, 8}, 1)).sum().backward();
      const auto whole = model.gathered();
      require(model->first->weight.eq(2).all().item<bool>(), "what was written is lost");
      require(model->last->weight.eq(3).all().item<bool>(), "what was written by data() is lost");
    }
}

void sharded_read_by_data(const World& world) {
  for (const Shard shard : kShards) {
    Split model(seeded<Detour>(), world, {.shard = shard});
    torch::optim::SGD sgd(model.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      step_on(*model.module(), sgd, world, step);
      Tensors read;
      for (const torch::Tensor& parameter : model->parameters()) read.push_back(parameter.data().clone().reshape(-1));
      require_equal_everywhere(torch::cat(read), "weights read by data()");
      require(torch::cat(read).equal(flat(*model.module())), "data() reads old weights");
    }
    step_on(*model.module(), sgd, world, 4);
    const auto read = [&] { static_cast<void>(model->first->weight.const_data_ptr<float>()); };
    if (world.size() > 1) require_error(read, "exception", {"not allocated"});
    if (world.size() == 1 || shard == Shard::parameters) continue;
    {
      const auto whole = model.gathered();
      step_on(*model.module(), sgd, world, 5);
    }
    require_error(read, "exception", {"not allocated"});
  }
}

void sharded_step_on_one_rank(const World& world) {
  if (world.size() == 1) return;
  for (const Shard shard : kShards) {
    Split model(seeded<Detour>(), world, {.shard = shard});
    torch::optim::SGD sgd(model.parameters(), 0.1);
    const auto step = [&](bool steps) {
      model(input(world, {4, 8}, 1)).sum().backward();
      if (steps) sgd.step();
      sgd.zero_grad();
    };
    step(true);
    step(world.rank() == 0);
    require_error([&] { step(true); }, "UsageError", {"an optimizer has stepped on rank 0", "but not on rank"});
  }
}

// --- one weight alone

void inputs_of_backward(const World& world) {
  DataParallel model(seeded<Detour>(), world, {.find_unused_parameters = true});
  for (int step = 0; step < 4; ++step) {
    model->zero_grad();
    loss_on(*model.module(), world, step).backward({}, false, false, {{model->last->weight}});
    require_equal_everywhere(model->last->weight.grad(), fmt::format("the only gradient of step {}", step));
    require(!model->first->weight.grad().defined(), "a gradient that was not asked for");
  }
}

// A loop that takes gradients by hand, and forgets to average them; and one that does.
void gradients_by_hand(const World& world) {
  if (world.size() == 1) return;
  for (const bool averages : {true, false}) {
    DataParallel model(seeded<Detour>(), world);
    const Tensors parameters = model->parameters();
    torch::optim::SGD sgd(parameters, 0.1);
    const auto step = [&](int number) {
      const Tensors gradients = torch::autograd::grad({loss_on(*model.module(), world, number)}, parameters);
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (averages) all_reduce(gradients[i], ReduceOp::avg);
        parameters[i].mutable_grad() = gradients[i];
      }
      sgd.step();
    };
    step(0);
    for (int i = 1; averages && i < 4; ++i) step(i);
    if (!averages)
      require_error([&] { step(1); }, "UsageError",
                    {"torch::autograd::grad()", "parameter first.weight of rank 1 differs", "all_reduce()"});
  }
}

// Between two averaged backwards rank 0 alone looks at gradients, with its weights and with their averages.
void gradients_looked_at_on_one_rank(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  optim::Ema average(*model.module(), {.decay = 0.5});
  const auto look = [&](int number) {
    static_cast<void>(torch::autograd::grad({loss_on(*model.module(), world, number)}, model->parameters()));
  };
  for (int step = 0; step < 6; ++step) {
    step_on(*model.module(), sgd, world, step);
    average.update();
    if (world.rank() != 0) continue;
    look(20);
    {
      const auto averaged = average.apply();
      look(21);
    }
    look(22);
  }
  require_equal_everywhere(flat(*model.module()), "weights after rank 0 has looked at gradients");
}

// Steps by hand after averaged ones: the next averaged backward compares.
void gradients_by_hand_later(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Detour>(), world);
  const Tensors parameters = model->parameters();
  torch::optim::SGD sgd(parameters, 0.1);
  for (int step = 0; step < 2; ++step) step_on(*model.module(), sgd, world, step);
  for (int step = 2; step < 4; ++step) {
    const Tensors gradients = torch::autograd::grad({loss_on(*model.module(), world, step)}, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i].clone();
    sgd.step();
  }
  sgd.zero_grad();
  require_error([&] { step_on(*model.module(), sgd, world, 4); }, "UsageError",
                {"number 3", "torch::autograd::grad()", "parameter first.weight of rank 1 differs"});
}

// The same under no_sync().
void averaged_by_hand(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  const NoSync local = model.no_sync();
  for (int step = 0; step < 4; ++step) {
    loss_on(*model.module(), world, step).backward();
    for (const torch::Tensor& parameter : model->parameters()) all_reduce(parameter.grad(), ReduceOp::avg);
    sgd.step();
    sgd.zero_grad();
  }
  require_equal_everywhere(flat(*model.module()), "averaged by hand");
}

// --- a layer that nobody wrapped

void layer_outside(const World& world) {
  if (world.size() == 1) return;
  auto head = seeded<torch::nn::LinearImpl>(4, 3);
  DataParallel model(seeded<Detour>(), world);
  torch::optim::SGD sgd(head->parameters(), 0.1);
  const torch::Tensor points = input(world, {4, 8}, 0).requires_grad_();  // the same in each step, but not trained
  const auto train = [&] {
    for (int step = 0; step < 3; ++step) {
      head->forward(model(points)).sum().backward();
      sgd.step();
    }
  };
  const std::string warnings = warnings_of(train);
  require((warnings.find("Float[3, 4]") != std::string::npos) == (world.rank() == 0), warnings);
  DataParallel other(seeded<Detour>(), world);
  DataParallel wrapped(head, world);
  const auto both = [&] {
    for (int step = 0; step < 3; ++step) wrapped(other(input(world, {4, 8}, step))).sum().backward();
  };
  require(warnings_of(both).find("no wrapped module") == std::string::npos, "a wrapped layer is not outside");
}

// --- optimizers with other options

void other_learning_rates(const World& world) {
  if (world.size() == 1) return;
  for (const Shard shard : kShards) {
    Split model(seeded<Detour>(), world, {.shard = shard});
    torch::optim::SGD sgd(model.parameters(), world.rank() == 1 ? 0.2 : 0.1);
    train::Step step(model, sgd);
    require_error([&] { step([&] { return loss_on(*model.module(), world, 1); }); }, "UsageError",
                  {"train::Step", "lr = 0.1", "lr = 0.2", "rank 1"});
  }
}

// --- a weight that is not a number

struct PlainOptions : torch::optim::OptimizerCloneableOptions<PlainOptions> {};

// An optimizer of a program's own, whose options cannot be saved.
class PlainDescent : public torch::optim::Optimizer {
 public:
  explicit PlainDescent(const Tensors& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<PlainOptions>()) {}
  torch::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (const torch::optim::OptimizerParamGroup& group : param_groups())
      for (torch::Tensor parameter : group.params())
        if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.1);
    return {};
  }
};

void own_optimizer(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  PlainDescent descent(model->parameters());
  train::Step step(model, descent);
  for (int i = 0; i < 3; ++i) step([&] { return loss_on(*model.module(), world, i); });
  require_equal_everywhere(flat(*model.module()), "weights of an optimizer of the program's own");
}

void sharded_not_finite(const World& world) {
  Split model(seeded<Detour>(), world);
  const auto backward = [&] {
    loss_on(*model.module(), world, 1).backward();
    for (const torch::Tensor& piece : model.parameters()) piece.mutable_grad().reset();
  };
  for (int step = 1; step < 200; ++step) backward();
  {
    const auto whole = model.gathered();
    const torch::NoGradGuard no_grad;
    model->last->bias[1] = std::numeric_limits<float>::infinity();
  }
  require_error(backward, "UsageError", {"number 200", "parameter last.bias of rank", "is not finite"});
}

// --- a static graph that changes

// With `twice` a backward runs inside of the backward, so that `last` gets two gradients.
void static_graph_with_fewer_gradients(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Detour>(), world, {.static_graph = true});
  Detour& net = *model.module();
  const auto backward = [&](bool twice) {
    model->zero_grad();
    torch::Tensor between = net.first(input(world, {4, 8}, world.rank()));
    if (twice)
      between.register_hook([&](const torch::Tensor&) {
        const torch::AutoGradMode with_graph(true);
        net.last(torch::ones({2, 8})).sum().backward();
      });
    net.last(torch::tanh(net.middle(between))).square().mean().backward();
  };
  for (int step = 0; step < 3; ++step) {
    backward(true);
    require_equal_everywhere(net.last->bias.grad(), "two gradients in one backward");
  }
  require_error([&] { backward(false); }, "UsageError", {"parameter last.", "static_graph", "1 gradients", "2 in the"});
}

// --- a checkpoint of weights that differ

void checkpoint_of_weights_that_differ(const World& world) {
  if (world.size() == 1) return;
  const std::string folder = broadcast_object(fmt::format("apart_checkpoint.{}", getpid()), 0, world);
  DataParallel model(seeded<Detour>(), world);
  Checkpoint checkpoint(folder, world);
  const TrainingState state{.model = model};
  checkpoint.save(state, {.step = 1});
  {
    const torch::NoGradGuard no_grad;
    if (world.rank() == 1) model->last->bias[0] += 1;
  }
  require_error([&] { checkpoint.save(state, {.step = 2}); }, "UsageError",
                {"Checkpoint::save()", "parameter last.bias of rank 1 differs from that of rank 0"});
  barrier(world);
  if (world.rank() == 0) std::filesystem::remove_all(folder);
}

// --- join()

// The state of the optimizer goes with the weights. Rank 0 has no batch in the first epoch.
void join_with_the_optimizer(const World& world) {
  DataParallel model(seeded<Detour>(), world);
  auto alone = seeded<Detour>();
  torch::optim::Adam adam(model->parameters(), 0.01), reference(alone->parameters(), 0.01);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto steps_of = [&](int rank) { return rank == 0 && epoch == 0 && world.size() > 1 ? 0 : 2 + rank; };
    Tensors weights;  // after each step
    const auto train = [&] {
      for (int step = 0; step < steps_of(world.rank()); ++step) {
        step_on(*model.module(), adam, world, step);
        weights.push_back(flat(*model.module()));
      }
    };
    model.join(train, adam);
    for (int step = 0; step < steps_of(world.size() - 1); ++step) {
      torch::Tensor sum = torch::zeros({});
      for (int rank = 0; rank < world.size(); ++rank)
        if (step < steps_of(rank))
          sum = sum + alone->forward(numbers({4, 8}, 10 * step + rank)).square().mean() / world.size();
      sum.backward();
      reference.step();
      reference.zero_grad();
      if (const auto i = static_cast<size_t>(step); i < weights.size())
        require_near(weights[i], flat(*alone), 1e-4, fmt::format("epoch {}, step {}", epoch, step));
    }
    require_near(flat(*model.module()), flat(*alone), 1e-4, fmt::format("epoch {}", epoch));
    require_equal_everywhere(flat(*model.module()), "join with an optimizer");
  }
}

void join_without_the_optimizer(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Detour>(), world);
  torch::optim::Adam adam(model->parameters(), 0.01);
  const auto epoch = [&] {
    for (int step = 0; step < 3 + world.rank(); ++step) step_on(*model.module(), adam, world, step);
  };
  model.join(epoch);
  require_error([&] { model.join(epoch); }, "UsageError", {"parameter first.weight", "join(train, optimizer)"});
}

// --- a wrapper that is gone

void wrapper_gone(const World& world) {
  if (world.size() == 1) return;
  auto net = seeded<Detour>();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  {
    DataParallel model(net, world);
    step_on(*net, sgd, world, 0);
  }
  require_error([&] { step_on(*net, sgd, world, 1); }, "UsageError",
                {"parameter first.weight", "DataParallel", "gone", "clone()"});
  net->zero_grad();
  DataParallel again(net, world);
  step_on(*net, sgd, world, 2);
  require_equal_everywhere(flat(*net), "wrapped again");
}

void sharded_wrapper_gone(const World& world) {
  if (world.size() == 1) return;
  for (const Shard shard : {Shard::optimizer, Shard::gradients}) {
    auto net = seeded<Detour>();
    { ShardedDataParallel model(net, world, {.shard = shard}); }
    require_error([&] { loss_on(*net, world, 1).backward(); }, "UsageError",
                  {"parameter first.weight", "ShardedDataParallel", "gone"});
    auto stepped = seeded<Detour>();
    {
      Split model(stepped, world, {.shard = shard});
      torch::optim::SGD sgd(model.parameters(), 0.1);
      step_on(*stepped, sgd, world, 1);
    }
    require(loss_on(*stepped, world, 1).isnan().item<bool>(), "weights from before the step pass for those after it");
  }
}

// The shard has memory of its own. What the module keeps of this rank's part are the values after the last step.
void sharded_wrapper_gone_in_low_precision(const World& world) {
  for (const Shard shard : {Shard::optimizer, Shard::gradients}) {
    auto net = seeded<Detour>();
    Tensors stepped;
    {
      Split model(net, world, {.shard = shard, .param_dtype = torch::kBFloat16});
      torch::optim::SGD sgd(model.parameters(), 1);
      net->forward(input(world, {4, 8}, 1).to(torch::kBFloat16)).to(torch::kFloat).square().mean().backward();
      const torch::Tensor before = torch::cat(model.parameters()).to(torch::kBFloat16);
      sgd.step();
      for (const torch::Tensor& piece : model.parameters())
        stepped.push_back(piece.detach().to(world.device(), torch::kBFloat16, /*non_blocking=*/false, /*copy=*/true));
      require(before.numel() == 0 || !torch::cat(stepped).equal(before), "the step has changed nothing");
    }
    const torch::Tensor left = flat(*net);
    const torch::Tensor numbers_left = left.masked_select(left.isnan().logical_not());
    require(numbers_left.equal(torch::cat(stepped)), "the weights are not those after the last step");
    require(world.size() > 1 || numbers_left.numel() == left.numel(), "weights are lost in a world of one");
  }
}

}  // namespace

std::vector<Case> apart_cases() {
  return {{"no_sync_out_of_order", no_sync_out_of_order},
          {"no_sync_over_the_step", no_sync_over_the_step},
          {"no_sync_around_an_evaluation", no_sync_around_an_evaluation},
          {"no_sync_in_the_last_group", no_sync_in_the_last_group},
          {"no_sync_then_the_same_change", no_sync_then_the_same_change},
          {"no_sync_for_ever", no_sync_for_ever},
          {"no_sync_around_an_evaluation_of_one_rank", no_sync_around_an_evaluation_of_one_rank},
          {"no_sync_with_steps_of_each_rank", no_sync_with_steps_of_each_rank},
          {"own_optimizer", own_optimizer},
          {"sharded_written_on_one_rank", sharded_written_on_one_rank},
          {"sharded_written_by_data", sharded_written_by_data},
          {"sharded_written_in_two_ways", sharded_written_in_two_ways},
          {"sharded_read_by_data", sharded_read_by_data},
          {"sharded_step_on_one_rank", sharded_step_on_one_rank},
          {"inputs_of_backward", inputs_of_backward},
          {"gradients_by_hand", gradients_by_hand},
          {"gradients_looked_at_on_one_rank", gradients_looked_at_on_one_rank},
          {"gradients_by_hand_later", gradients_by_hand_later},
          {"averaged_by_hand", averaged_by_hand},
          {"layer_outside", layer_outside},
          {"other_learning_rates", other_learning_rates},
          {"sharded_not_finite", sharded_not_finite},
          {"static_graph_with_fewer_gradients", static_graph_with_fewer_gradients},
          {"checkpoint_of_weights_that_differ", checkpoint_of_weights_that_differ},
          {"join_with_the_optimizer", join_with_the_optimizer},
          {"join_without_the_optimizer", join_without_the_optimizer},
          {"wrapper_gone", wrapper_gone},
          {"sharded_wrapper_gone", sharded_wrapper_gone},
          {"sharded_wrapper_gone_in_low_precision", sharded_wrapper_gone_in_low_precision}};
}

}  // namespace trireme::test
