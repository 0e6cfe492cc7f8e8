// Models that change after they were wrapped: every backward is averaged, or throws on every rank.
#include <limits>
#include <sstream>

#include "cases.h"

namespace trireme::test {
namespace {

constexpr int kRows = 8;

struct Changing : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::tanh(first(x));
    if (extra) y = torch::tanh(extra(y));
    return last(y);
  }
  void add_layer(uint64_t seed) {
    torch::manual_seed(seed);
    extra = register_module("extra", torch::nn::Linear(5, 5));
    extra->to(first->weight.scalar_type());
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 5));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 2));
  torch::nn::Linear extra{nullptr};
};

using Change = std::function<void(Changing&)>;

void train_once(Changing& net, const torch::Tensor& x) {
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  net.forward(x.to(net.first->weight.scalar_type())).square().mean().backward();
  optimizer.step();
  optimizer.zero_grad();
}

// Trains a wrapped and a plain copy; the change comes before the third step. The wrapper itself is not touched after
// it was made.
void compare_changed(
    const World& world, const char* what, const Change& change, DataParallelOptions options = {},
    const Change& before = [](Changing&) {}) {
  for (const int steps_before : {0, 2}) {
    auto wrapped = seeded<Changing>(), alone = seeded<Changing>();
    before(*wrapped), before(*alone);
    const DataParallel model(wrapped, world, options);
    for (int step = 0; step < 5; ++step) {
      if (step == steps_before) change(*wrapped), change(*alone);
      const torch::Tensor x = numbers({kRows, 6}, step);
      train_once(*wrapped, share(x, world));
      train_once(*alone, x);
    }
    const double tolerance = alone->first->weight.scalar_type() == torch::kBFloat16 ? 0.05 : 1e-5;
    require_near(flat(*wrapped), flat(*alone), tolerance, what);
    require_equal_everywhere(flat(*wrapped), what);
  }
}

void loaded_later(const World& world) {
  compare_changed(world, "torch::load", [](Changing& net) {
    std::stringstream file;
    torch::save(seeded<Changing>(), file);
    auto pointer = std::static_pointer_cast<Changing>(net.shared_from_this());
    torch::load(pointer, file);
  });
}

void to_another_type(const World& world) {
  for (const auto type : {torch::kDouble, torch::kBFloat16})
    compare_changed(world, "to(dtype)", [type](Changing& net) { net.to(type); });
}

void layer_added(const World& world) {
  compare_changed(world, "a layer added", [](Changing& net) { net.add_layer(3); });
}

void layer_added_with_other_weights(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Changing>(), world);
  train_once(*model.module(), torch::ones({2, 6}));
  model->add_layer(static_cast<uint64_t>(world.rank()));
  require_error(
      [&] {
        train_once(*model.module(), torch::ones({2, 6}));
      },
      "UsageError", {"parameter extra.weight of rank 1 differs", "rank 0", "every rank"});
}

void set_trainable(Changing& net, bool trainable) {
  for (const torch::Tensor& parameter : net.first->parameters()) parameter.set_requires_grad(trainable);
}

// Train the head, then all of it; and the other way round.
void unfrozen_later(const World& world) {
  const Change freeze = [](Changing& net) { set_trainable(net, false); };
  const Change unfreeze = [](Changing& net) { set_trainable(net, true); };
  for (const bool unused : {false, true}) {
    compare_changed(world, "unfrozen", unfreeze, {.find_unused_parameters = unused}, freeze);
    compare_changed(world, "frozen later", freeze, {.find_unused_parameters = unused});
  }
}

void parameter_replaced(const World& world) {
  compare_changed(world, "a weight replaced", [](Changing& net) {
    net.unregister_module("last");
    torch::manual_seed(5);
    net.last = net.register_module("last", torch::nn::Linear(5, 2));
  });
}

// New tensors under the old names, on one rank only: nothing that the ranks would have to agree on.
void replaced_on_one_rank(const World& world) {
  auto wrapped = seeded<Changing>(), alone = seeded<Changing>();
  const DataParallel model(wrapped, world);
  for (int step = 0; step < 4; ++step) {
    if (step == 2 && world.rank() == 0) {
      const auto old = wrapped->last;
      wrapped->unregister_module("last");
      wrapped->last = wrapped->register_module("last", torch::nn::Linear(5, 2));
      const torch::NoGradGuard no_grad;
      wrapped->last->weight.copy_(old->weight), wrapped->last->bias.copy_(old->bias);
    }
    const torch::Tensor x = numbers({kRows, 6}, step);
    train_once(*wrapped, share(x, world));
    train_once(*alone, x);
  }
  require_near(flat(*wrapped), flat(*alone), 1e-5, "replaced on one rank");
}

// The rank that changed says what; the others hear it.
void changed_on_one_rank(const World& world) {
  if (world.size() == 1) return;
  for (const int steps : {0, 2}) {
    DataParallel model(seeded<Changing>(), world);
    for (int step = 0; step < steps; ++step) train_once(*model.module(), torch::ones({2, 6}));
    const bool changes = world.rank() == world.size() - 1;
    if (changes) model->last->weight.set_requires_grad(false);
    const std::string error = error_of([&] { train_once(*model.module(), torch::ones({2, 6})); });
    require(error.starts_with(changes ? "UsageError: " : "PeerError: "), error);
    require(error.find("parameter last.weight is") != std::string::npos, error);
  }
}

// The graph of a forward leads to where the parameters' gradients went then.
void changed_after_forward(const World& world) {
  if (world.size() == 1) return;
  const auto back_and_forth = [](const torch::Tensor& parameter) {
    for (const auto type : {torch::kDouble, torch::kFloat}) parameter.set_data(parameter.detach().to(type));
  };
  const std::vector<Change> changes = {
      [](Changing& net) {
        net.to(torch::kDouble);
        net.to(torch::kFloat);
      },
      [](Changing& net) { net.to(torch::kDouble); },
      [&](Changing& net) { back_and_forth(net.first->weight); },
      [&](Changing& net) { back_and_forth(net.last->bias); },
  };
  for (size_t i = 0; i < changes.size(); ++i)
    for (const int steps : {0, 2})
      for (const bool unused : {false, true})
        for (const bool everywhere : {true, false}) {
          DataParallel model(seeded<Changing>(), world, {.find_unused_parameters = unused});
          for (int step = 0; step < steps; ++step) train_once(*model.module(), torch::ones({2, 6}));
          const torch::Tensor loss = model(torch::ones({2, 6})).sum();
          if (everywhere || world.rank() == world.size() - 1) changes[i](*model.module());
          const std::string error = error_of([&] { loss.backward(); });
          require(error.find("was changed between forward and backward") != std::string::npos,
                  fmt::format("change {} after {} steps, unused = {}, everywhere = {}: {}", i, steps, unused,
                              everywhere, error));
          require(error.find(i < 3 ? "parameter first.weight" : "parameter last.bias") != std::string::npos, error);
        }
}

// The types of forward, of backward and of the model before both are different ones.
void changed_around_forward(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Changing>(), world);
  train_once(*model.module(), torch::ones({2, 6}));
  model->to(torch::kDouble);
  const torch::Tensor loss = model(torch::ones({2, 6}, torch::kDouble)).sum();
  model->to(torch::kFloat);
  train_once(*model.module(), torch::ones({2, 6}));
  const std::string error = error_of([&] { loss.backward(); });
  require(error.find("was changed between forward and backward") != std::string::npos, error);
}

// Nothing that would be averaged: the graph leads past the frozen parameter.
void frozen_after_forward(const World& world) {
  auto wrapped = seeded<Changing>(), alone = seeded<Changing>();
  const DataParallel model(wrapped, world);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor x = numbers({kRows, 6}, step);
    const torch::Tensor mine = wrapped->forward(share(x, world)).square().mean();
    const torch::Tensor whole = alone->forward(x).square().mean();
    for (Changing* net : {wrapped.get(), alone.get()}) set_trainable(*net, step == 1);
    mine.backward(), whole.backward();
    require(wrapped->first->weight.grad().defined() == alone->first->weight.grad().defined(), "frozen after forward");
    require_near(wrapped->last->weight.grad(), alone->last->weight.grad(), 1e-5, "frozen after forward");
  }
}

// Views of one tensor have one version: that of `first` changes with every gradient of `last`, and means nothing.
void gradients_in_one_memory(const World& world) {
  DataParallel model(seeded<Changing>(), world, {.find_unused_parameters = true});
  const torch::Tensor all = torch::zeros_like(flat(*model.module()));
  int64_t begin = 0;
  for (const torch::Tensor& parameter : model->parameters()) {
    parameter.mutable_grad() = all.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    begin += parameter.numel();
  }
  for (int step = 0; step < 3; ++step) model->last(torch::ones({2, 5})).sum().backward();
  require_near(model->last->bias.grad(), torch::full({2}, 6.0), 1e-6, "what every backward reaches");
  require(model->first->weight.grad().eq(0).all().item<bool>(), "what none reaches");
}

struct NormedNet : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = norm(first(x.to(first->weight.scalar_type())).to(torch::kFloat));
    torch::Tensor result = last(torch::tanh(y).to(last->weight.scalar_type()));
    if (use_extra) result = result + extra(x.to(extra->weight.scalar_type()));
    return result.to(torch::kFloat);
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(6, 5).bias(false)));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(5));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 2));
  torch::nn::Linear extra = register_module("extra", torch::nn::Linear(6, 2));
  bool use_extra = true;
};

// Buckets of two types from then on: the norms keep all digits. Every rank has the same rows, so that the statistics are
// those of one process.
void to_low_precision(const World& world) {
  for (const bool unused : {false, true})
    for (const int steps_before : {0, 2}) {
      auto wrapped = seeded<NormedNet>(), alone = seeded<NormedNet>();
      const DataParallel model(wrapped, world, {.find_unused_parameters = unused});
      for (int step = 0; step < 5; ++step) {
        for (const auto& net : {wrapped, alone}) {
          if (step == steps_before) optim::lower_precision(*net, torch::kBFloat16);
          net->use_extra = !unused || step % 2 == 0;
          torch::optim::SGD optimizer(net->parameters(), 0.1);
          const double factor = net == wrapped ? world.rank() + 1 : 0.5 * (world.size() + 1);
          (net->forward(numbers({kRows, 6}, step)).square().mean() * factor).backward();
          optimizer.step();
        }
        require(wrapped->first->weight.grad().scalar_type() == wrapped->first->weight.scalar_type(), "another type");
        require(wrapped->norm->weight.scalar_type() == torch::kFloat, "the norm is in low precision");
        for (const auto& item : wrapped->named_parameters()) {
          const torch::Tensor& expected = alone->named_parameters()[item.key()].grad();
          require(item.value().grad().defined() == expected.defined(), item.key());
          if (expected.defined()) require_near(item.value().grad(), expected, 0.05, item.key());
        }
        wrapped->zero_grad(), alone->zero_grad();
      }
      require(wrapped->last->weight.scalar_type() == torch::kBFloat16, "not in low precision");
      for (const torch::Tensor& parameter : wrapped->parameters()) require_equal_everywhere(parameter, "parameters");
    }
}

// The closing backward does not touch `first`, which has a gradient from before.
void no_sync_then_less(const World& world) {
  for (const bool unused : {false, true})
    for (const int steps_before : {0, 2}) {
      auto wrapped = seeded<Changing>(), alone = seeded<Changing>();
      DataParallel model(wrapped, world, {.find_unused_parameters = unused});
      for (int step = 0; step < steps_before; ++step) {
        train_once(*wrapped, share(numbers({kRows, 6}, step), world));
        train_once(*alone, numbers({kRows, 6}, step));
      }
      const torch::Tensor x = numbers({kRows, 6}, 7), y = numbers({kRows, 5}, 8);
      {
        auto local = model.no_sync();
        wrapped->forward(share(x, world)).square().mean().backward();
      }
      wrapped->last(share(y, world)).square().mean().backward();
      alone->forward(x).square().mean().backward();
      alone->last(y).square().mean().backward();
      require_near(wrapped->first->weight.grad(), alone->first->weight.grad(), 1e-5, "only in the local backward");
      require_near(wrapped->last->weight.grad(), alone->last->weight.grad(), 1e-5, "in both backwards");
    }
}

// Nobody knows a bucket for it.
void no_sync_then_new_use(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Changing>(), world);
  for (int step = 0; step < 2; ++step) model->last(torch::ones({2, 5})).sum().backward();
  {
    auto local = model.no_sync();
    model(torch::ones({2, 6})).sum().backward();
  }
  require_error(
      [&] {
        model->last(torch::ones({2, 5})).sum().backward();
      },
      "UsageError", {"first.weight", "find_unused_parameters = true"});
}

void no_sync_then_change(const World& world) {
  auto wrapped = seeded<Changing>(), alone = seeded<Changing>();
  DataParallel model(wrapped, world);
  const torch::Tensor x = numbers({kRows, 6}, 1);
  {
    auto local = model.no_sync();
    wrapped->forward(share(x, world)).square().mean().backward();
  }
  alone->forward(x).square().mean().backward();
  for (Changing* net : {wrapped.get(), alone.get()}) net->add_layer(3);
  wrapped->extra(share(torch::ones({kRows, 5}), world)).square().mean().backward();
  alone->extra(torch::ones({kRows, 5})).square().mean().backward();
  for (const auto& item : alone->named_parameters())
    require_near(wrapped->named_parameters()[item.key()].grad(), item.value().grad(), 1e-5, item.key());
}

void parameters_that_differ(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Changing>(), world, {.parameter_check_interval = 4});
  const auto step = [&] { train_once(*model.module(), torch::ones({2, 6})); };
  for (int i = 0; i < 2; ++i) step();
  if (world.rank() == 1) {
    const torch::NoGradGuard no_grad;
    model->last->bias[1] += 1e-6;
  }
  step();
  require_error(step, "UsageError", {"number 4", "parameter last.bias of rank 1 differs from that of rank 0"});
}

void parameters_that_differ_early(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Changing>(), world);
  const auto step = [&] { train_once(*model.module(), torch::ones({2, 6})); };
  step();
  const torch::NoGradGuard no_grad;
  if (world.rank() == 1) model->last->bias[1] += 1e-6;
  const torch::AutoGradMode with_graph(true);
  require_error(step, "UsageError", {"number 2", "parameter last.bias of rank 1 differs from that of rank 0"});
}

void parameters_not_finite(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(seeded<Changing>(), world, {.parameter_check_interval = 2});
  const auto backward = [&] { model(torch::ones({2, 6})).sum().backward(); };
  backward();
  const torch::NoGradGuard no_grad;
  model->first->weight[0][1] = std::numeric_limits<float>::quiet_NaN();
  const torch::AutoGradMode with_graph(true);
  require_error(backward, "UsageError", {"parameter first.weight of rank 0 is not finite"});
}

void parameters_not_checked(const World& world) {
  require_error([&] { static_cast<void>(DataParallel(seeded<Changing>(), world, {.parameter_check_interval = -1})); },
                "UsageError", {"-1"});
  DataParallel model(seeded<Changing>(), world, {.parameter_check_interval = 0});
  if (world.rank() == 1) {
    const torch::NoGradGuard no_grad;
    model->last->bias[1] += 1;
  }
  for (int i = 0; i < 101; ++i) model(torch::ones({2, 6})).sum().backward();
}

}  // namespace

std::vector<Case> change_cases() {
  return {{"loaded_later", loaded_later},
          {"to_another_type", to_another_type},
          {"layer_added", layer_added},
          {"layer_added_with_other_weights", layer_added_with_other_weights},
          {"unfrozen_later", unfrozen_later},
          {"parameter_replaced", parameter_replaced},
          {"replaced_on_one_rank", replaced_on_one_rank},
          {"changed_on_one_rank", changed_on_one_rank},
          {"changed_after_forward", changed_after_forward},
          {"changed_around_forward", changed_around_forward},
          {"frozen_after_forward", frozen_after_forward},
          {"gradients_in_one_memory", gradients_in_one_memory},
          {"to_low_precision", to_low_precision},
          {"no_sync_then_less", no_sync_then_less},
          {"no_sync_then_new_use", no_sync_then_new_use},
          {"no_sync_then_change", no_sync_then_change},
          {"parameters_that_differ", parameters_that_differ},
          {"parameters_that_differ_early", parameters_that_differ_early},
          {"parameters_not_finite", parameters_not_finite},
          {"parameters_not_checked", parameters_not_checked}};
}

}  // namespace trireme::test
