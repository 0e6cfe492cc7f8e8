#include "trireme/parallel/checkpoint.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace trireme {
namespace {

using Part = std::function<torch::Tensor(torch::Tensor)>;
using Callbacks = std::vector<std::function<void()>>;

// The callbacks of the outermost backward while checkpoints compute inside it; null outside.
thread_local std::shared_ptr<Callbacks> t_outer;

void queue_in_engine(std::function<void()> f) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(f));
}

// Marks the backward of a checkpoint. The first one inside a backward opens the list of callbacks.
class Inside {
 public:
  Inside() : owner_(!t_outer) {
    if (!owner_) return;
    t_outer = std::make_shared<Callbacks>();
    queue_in_engine([callbacks = t_outer] {
      for (const auto& f : *callbacks) f();
    });
  }
  ~Inside() {
    if (owner_) t_outer = nullptr;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const bool owner_;
};

// The random numbers of a device as they were when it was made.
struct RandomState {
  explicit RandomState(const c10::Device& device)
      : generator(at::globalContext().defaultGenerator(device)), state(generator.get_state()) {}
  at::Generator generator;
  torch::Tensor state;
};

std::vector<RandomState> random_states(const c10::Device& device) {
  std::vector<RandomState> states{RandomState(c10::Device(torch::kCPU))};
  if (!device.is_cpu()) states.emplace_back(device);
  return states;
}

// Puts the random numbers back to some states for as long as it lives.
class RandomAsBefore {
 public:
  RandomAsBefore(std::vector<RandomState>& then, const c10::Device& device) : now_(random_states(device)) { set(then); }
  ~RandomAsBefore() { set(now_); }
  RandomAsBefore(const RandomAsBefore&) = delete;
  RandomAsBefore& operator=(const RandomAsBefore&) = delete;

 private:
  static void set(std::vector<RandomState>& states) {
    for (RandomState& random : states) random.generator.set_state(random.state);
  }
  std::vector<RandomState> now_;
};

struct Recipe : torch::CustomClassHolder {
  Recipe(Part function, const c10::Device& device) : f(std::move(function)), random(random_states(device)) {}
  Part f;
  std::vector<RandomState> random;
};

class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& /*keeps the graph*/, const Part& f) {
    context->save_for_backward({x});
    context->saved_data["recipe"] = c10::IValue::make_capsule(c10::make_intrusive<Recipe>(f, x.device()));
    context->saved_data["needs"] = x.requires_grad();
    const torch::NoGradGuard no_grad;
    return f(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const Inside inside;
    const auto recipe = c10::static_intrusive_pointer_cast<Recipe>(context->saved_data["recipe"].toCapsule());
    torch::Tensor x = context->get_saved_variables()[0].detach();
    x.set_requires_grad(context->saved_data["needs"].toBool());
    torch::Tensor y;
    {
      const torch::AutoGradMode with_graph(true);
      const RandomAsBefore same_numbers(recipe->random, x.device());
      y = recipe->f(x);
    }
    if (y.requires_grad()) y.backward(gradients[0]);
    return {x.grad(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor checkpoint(const Part& f, const torch::Tensor& x) {
  if (!torch::GradMode::is_enabled()) return f(x);
  // Parameters inside need their gradients even when `x` does not: the second input ties the result to the graph.
  const torch::Tensor tie = torch::empty({0}, torch::TensorOptions().requires_grad(true));
  return Checkpoint::apply(x, tie, f);
}

void at_end_of_backward(std::function<void()> f) {
  if (t_outer)
    t_outer->push_back(std::move(f));
  else
    queue_in_engine(std::move(f));
}

bool backward_has_checkpoints() {
  if (t_outer) return true;
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  return std::any_of(nodes->begin(), nodes->end(), [](const torch::autograd::Node* node) {
    return dynamic_cast<const torch::autograd::CppNode<Checkpoint>*>(node) != nullptr;
  });
}

}  // namespace trireme
