// Graphs that are more than forward, backward, step.
#include "cases.h"

namespace trireme::test {
namespace {

constexpr int kGraphBatch = 8;

struct Layers : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(middle(torch::tanh(first(x))))); }
  torch::Tensor forward_with_checkpoints(torch::Tensor x) {
    x = checkpoint([this](const torch::Tensor& in) { return torch::tanh(first(in)); }, x);
    x = checkpoint([this](const torch::Tensor& in) { return torch::tanh(middle(in)); }, x);
    return checkpoint([this](const torch::Tensor& in) { return last(in); }, x);
  }
  // `middle` is in two checkpoints.
  torch::Tensor forward_twice(torch::Tensor x, bool with_checkpoints) {
    const auto part = [this](const torch::Tensor& in) { return torch::tanh(middle(in)); };
    x = torch::tanh(first(x));
    for (int i = 0; i < 2; ++i) x = with_checkpoints ? checkpoint(part, x) : part(x);
    return last(x);
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 5));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(5, 5));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 2));
};

// Trains a wrapped and a plain copy for some steps; `step(net, x)` computes and calls backward.
template <typename Net, typename Step>
void compare(const World& world, const char* what, const DataParallelOptions& options, const Step& step) {
  DataParallel model(seeded<Net>(), world, options);
  auto alone = seeded<Net>();
  torch::optim::SGD ours(model->parameters(), 0.1), theirs(alone->parameters(), 0.1);
  for (int i = 0; i < 5; ++i) {
    const torch::Tensor x = numbers({kGraphBatch, 6}, i);
    ours.zero_grad(), theirs.zero_grad();
    step(*model.module(), share(x, world), true);
    step(*alone, x, false);
    ours.step(), theirs.step();
  }
  require_near(flat(*model.module()), flat(*alone), 1e-5, what);
  require_equal_everywhere(flat(*model.module()), what);
}

// One weight under two names.
struct Tied : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(torch::tanh(torch::linear(x, one, bias)), two); }
  torch::Tensor one = register_parameter("one", torch::randn({6, 6}));
  torch::Tensor bias = register_parameter("bias", torch::randn({6}));
  torch::Tensor two = register_parameter("two", one);
};

void shared_parameters(const World& world) {
  compare<Tied>(world, "a shared parameter", {},
                [](Tied& net, const torch::Tensor& x, bool) { net.forward(x).square().mean().backward(); });
}

struct PartlyFrozen : Layers {
  PartlyFrozen() { middle->weight.set_requires_grad(false); }
};

void frozen_parameters(const World& world) {
  compare<PartlyFrozen>(world, "frozen parameters", {}, [](PartlyFrozen& net, const torch::Tensor& x, bool) {
    net.forward(x).square().mean().backward();
    require(!net.middle->weight.grad().defined(), "frozen, and has a gradient");
  });
}

void several_forwards(const World& world) {
  compare<Layers>(world, "several forwards", {}, [](Layers& net, const torch::Tensor& x, bool) {
    const torch::Tensor before = net.forward(x);
    (before.square().mean() + (net.forward(x * 2) - before).square().mean()).backward();
  });
}

void two_backwards(const World& world) {
  compare<Layers>(world, "two backwards", {}, [](Layers& net, const torch::Tensor& x, bool) {
    net.forward(x).square().mean().backward();
    net.forward(x * 2).square().mean().backward();
  });
}

void backward_again(const World& world) {
  compare<Layers>(world, "the same graph twice", {}, [](Layers& net, const torch::Tensor& x, bool) {
    const torch::Tensor loss = net.forward(x).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

// The gradient of a gradient, as a penalty in the loss.
void double_backward(const World& world) {
  compare<Layers>(world, "a gradient penalty", {}, [](Layers& net, torch::Tensor x, bool) {
    x = x.detach().requires_grad_();
    const torch::Tensor y = net.forward(x).sum(1);
    const torch::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    (y.square().mean() + slope.square().sum(1).mean()).backward();
  });
}

// Averaged gradients have no graph; local ones have.
void create_graph(const World& world) {
  if (world.size() == 1) return;
  for (const int steps : {0, 2}) {
    DataParallel model(seeded<Layers>(), world);
    const auto loss = [&] { return model(torch::ones({2, 6})).sum(); };
    for (int step = 0; step < steps; ++step) loss().backward();
    model->zero_grad();
    {
      auto local = model.no_sync();
      loss().backward({}, true, /*create_graph=*/true);
      require(model->last->weight.grad().requires_grad(), "a local gradient has its graph");
    }
    model->zero_grad();
    require_error([&] { loss().backward({}, true, true); }, "UsageError", {"create_graph", "no_sync"});
  }
}

void checkpoints(const World& world) {
  for (const bool static_graph : {false, true})
    compare<Layers>(world, "all layers in checkpoints", {.static_graph = static_graph},
                    [](Layers& net, const torch::Tensor& x, bool ours) {
                      (ours ? net.forward_with_checkpoints(x) : net.forward(x)).square().mean().backward();
                    });
}

void checkpoints_and_unused(const World& world) {
  compare<Layers>(world, "checkpoints and find_unused_parameters", {.find_unused_parameters = true},
                  [](Layers& net, const torch::Tensor& x, bool ours) {
                    (ours ? net.forward_with_checkpoints(x) : net.forward(x)).square().mean().backward();
                  });
}

// The gradients of both uses are added up before the averaging sees them.
void shared_checkpoint(const World& world) {
  for (const bool static_graph : {false, true})
    compare<Layers>(
        world, "one layer in two checkpoints", {.static_graph = static_graph},
        [](Layers& net, const torch::Tensor& x, bool ours) { net.forward_twice(x, ours).square().mean().backward(); });
}

// A part may become shared later than in the first backward.
void shared_checkpoint_later(const World& world) {
  int step = 0;
  compare<Layers>(world, "checkpoints from the third step on", {}, [&](Layers& net, const torch::Tensor& x, bool ours) {
    net.forward_twice(x, ours && step >= 2).square().mean().backward();
    if (!ours) ++step;
  });
}

// A tensor that was computed outside and is captured: its parameters get the gradient of both uses.
void captured_by_checkpoint(const World& world) {
  compare<Layers>(world, "a computed tensor in a checkpoint", {.find_unused_parameters = true},
                  [](Layers& net, const torch::Tensor& x, bool ours) {
                    const torch::Tensor h = torch::tanh(net.first(x));
                    const auto part = [&net, h](const torch::Tensor& in) { return torch::tanh(net.middle(in)) * h; };
                    const torch::Tensor y = ours ? checkpoint(part, h) : part(h);
                    (net.last(y).square().mean() + h.square().mean()).backward();
                  });
}

void dropout_in_checkpoint(const World&) {
  const auto gradient_of = [](bool with_checkpoint) {
    auto net = seeded<torch::nn::LinearImpl>(6, 6);
    const auto part = [&](const torch::Tensor& x) { return torch::dropout(net->forward(x), 0.5, true); };
    torch::manual_seed(11);
    const torch::Tensor x = torch::ones({4, 6});
    torch::Tensor y = with_checkpoint ? checkpoint(part, x) : part(x);
    y = y * torch::rand_like(y);  // other random numbers between the two computations
    y.sum().backward();
    const torch::Tensor next = torch::rand({3});
    return torch::cat({net->weight.grad().flatten(), y.detach().flatten(), next});
  };
  require(gradient_of(true).equal(gradient_of(false)), "another mask, or the generator is elsewhere afterwards");
}

void checkpoint_without_gradients(const World&) {
  const torch::NoGradGuard no_grad;
  int calls = 0;
  const torch::Tensor y = checkpoint([&](const torch::Tensor& x) { return ++calls, x * 2; }, torch::ones(2));
  require(calls == 1 && y.equal(torch::full({2}, 2.0)) && !y.requires_grad(), "just called");
}

// Not only tanh: an error inside leaves the random numbers and the next backward as they were.
void checkpoint_that_throws(const World&) {
  bool fail = false;
  auto net = seeded<torch::nn::LinearImpl>(3, 3);
  const auto part = [&](const torch::Tensor& x) {
    if (fail) throw std::runtime_error("inside");
    return net->forward(torch::dropout(x, 0.5, true));
  };
  const torch::Tensor y = checkpoint(part, torch::ones({2, 3}));
  torch::manual_seed(3);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  fail = true;
  require_error([&] { y.sum().backward(); }, "exception", {"inside"});
  require(torch::rand({4}).equal(expected), "the generator was left in the middle");
  fail = false;
  checkpoint(part, torch::ones({2, 3})).sum().backward();
  require(net->weight.grad().defined(), "the next backward");
}

}  // namespace

std::vector<Case> graph_cases() {
  return {{"shared_parameters", shared_parameters},
          {"frozen_parameters", frozen_parameters},
          {"several_forwards", several_forwards},
          {"two_backwards", two_backwards},
          {"backward_again", backward_again},
          {"double_backward", double_backward},
          {"create_graph", create_graph},
          {"checkpoints", checkpoints},
          {"checkpoints_and_unused", checkpoints_and_unused},
          {"shared_checkpoint", shared_checkpoint},
          {"captured_by_checkpoint", captured_by_checkpoint},
          {"shared_checkpoint_later", shared_checkpoint_later},
          {"dropout_in_checkpoint", dropout_in_checkpoint},
          {"checkpoint_without_gradients", checkpoint_without_gradients},
          {"checkpoint_that_throws", checkpoint_that_throws}};
}

}  // namespace trireme::test
