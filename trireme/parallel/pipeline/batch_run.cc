#include "trireme/parallel/pipeline/batch_run.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/parallel/node_pointer.h"

namespace trireme::parallel {
namespace {

using torch::Tensor;

bool gives_weights_gradients(const Action& action) {
  return action.kind == Action::Kind::backward || action.kind == Action::Kind::weight_gradient;
}

struct PassOn : torch::autograd::Node {
  explicit PassOn(const Tensor& leaf) : Node({torch::autograd::impl::gradient_edge(leaf)}) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override { return gradients; }
};

// The same memory, but no leaf: a stage may begin with an operation in place, as in one process.
std::vector<Tensor> as_computed(const std::vector<Tensor>& leaves) {
  std::vector<Tensor> tensors;
  for (const Tensor& leaf : leaves) {
    tensors.push_back(leaf.detach());
    if (leaf.requires_grad() && torch::GradMode::is_enabled())
      torch::autograd::create_gradient_edge(tensors.back(), make_node<PassOn>(leaf));
  }
  return tensors;
}

std::vector<Tensor> with_gradient(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> needing;
  for (const Tensor& tensor : tensors)
    if (tensor.requires_grad()) needing.push_back(tensor);
  return needing;
}

}  // namespace

void BatchRun::run(const std::vector<Action>& actions) {
  for (const Action& action : actions)
    if (gives_weights_gradients(action)) ++weights_left_[action.stage];
  const Action* now = nullptr;
  const auto where = [&] {
    if (!now) return std::string("pipeline");
    return fmt::format("pipe stage {} of {} ({}), {}", now->stage, plan_.shape.stages(),
                       plan_.describe_stage(now->stage), describe(*now));
  };
  try {
    for (const Action& action : actions) {
      now = &action;
      act(action);
    }
    wire_.end();
  } catch (const PeerError& error) {
    const std::string text = fmt::format("{}: {}", where(), error.what());
    wire_.abort(text);
    throw PeerError(error.facts(), text);
  } catch (const UsageError& error) {
    const std::string text = fmt::format("{}: {}", where(), error.what());
    wire_.abort(text);
    throw UsageError("{}", text);
  } catch (const std::exception& error) {
    wire_.abort(fmt::format("{}: {}", where(), without_backtrace(error)));
    throw;
  }
}

void BatchRun::act(const Action& action) {
  switch (action.kind) {
    case Action::Kind::forward:
      return forward(action);
    case Action::Kind::backward:
      return backward(action);
    case Action::Kind::input_gradient:
      return input_gradient(action);
    case Action::Kind::weight_gradient:
      return weight_gradient(action);
  }
}

void BatchRun::forward(const Action& action) {
  Kept kept;
  const auto batch = static_cast<size_t>(action.micro_batch);
  kept.leaves = action.stage == 0 ? work_.inputs[batch] : wire_.receive({false, action.stage, action.micro_batch});
  Tensors outputs = stage_of(action).module->forward(as_computed(kept.leaves), work_.random, action.micro_batch);
  if (const auto& exchange = stage_of(action).exchange) exchange->rethrow_failure();
  if (is_last(action.stage)) {
    finish(action.micro_batch, outputs, kept);
  } else {
    wire_.send({false, action.stage + 1, action.micro_batch}, outputs);
    wire_.expect_gradients({true, action.stage, action.micro_batch}, outputs);
    kept.outputs = std::move(outputs);
  }
  if (torch::GradMode::is_enabled()) kept_.emplace(Key(action.stage, action.micro_batch), std::move(kept));
}

// The last stage's outputs become a loss, or are wanted themselves.
void BatchRun::finish(int micro_batch, const Tensors& outputs, Kept& kept) {
  const auto batch = static_cast<size_t>(micro_batch);
  if (!work_.loss) {
    outputs_[micro_batch] = outputs;
    return;
  }
  const Tensor mean = [&] {
    const auto own = work_.random.of(static_cast<int>(plan_.layers.size()), micro_batch);
    return work_.loss(outputs, work_.targets[batch]);
  }();
  if (mean.numel() != 1)
    throw UsageError("the loss has {} elements; it must be one number, the mean over the rows", mean.numel());
  const Tensor loss = mean.reshape({}) * work_.weights[batch];
  const Tensor value = loss.detach().to(torch::kDouble);
  loss_ = loss_.defined() ? loss_ + value : value;
  kept.outputs = {work_.scaled ? work_.scaled(loss) : loss};
}

std::vector<Tensor> BatchRun::outputs() const {
  Tensors whole;
  if (outputs_.empty()) return whole;
  for (size_t i = 0; i < outputs_.begin()->second.size(); ++i) {
    Tensors parts;
    for (const auto& [batch, tensors] : outputs_) parts.push_back(tensors[i]);
    whole.push_back(torch::cat(parts));
  }
  return whole;
}

// The outputs that need gradients, and these.
void BatchRun::incoming(const Action& action, const Kept& kept, Tensors& roots, Tensors& gradients) {
  for (const Tensor& output : kept.outputs)
    if (output.requires_grad()) roots.push_back(output);
  if (is_last(action.stage))
    for (const Tensor& root : roots) gradients.push_back(torch::ones_like(root));
  else
    gradients = wire_.receive({true, action.stage, action.micro_batch});
}

void BatchRun::send_gradients(const Action& action, const Tensors& leaves, const Tensors& gradients) {
  if (action.stage == 0) return;
  Tensors sent;
  for (size_t i = 0; i < leaves.size(); ++i)
    sent.push_back(gradients[i].defined() ? gradients[i] : torch::zeros_like(leaves[i]));
  wire_.send({true, action.stage - 1, action.micro_batch}, sent);
}

// The stage's last backward averages all gradients of the batch over the data axis.
template <typename Run>
void BatchRun::with_exchange(const Action& action, const Run& run) {
  const std::shared_ptr<GradientExchange>& exchange = stage_of(action).exchange;
  const bool last = --weights_left_.at(action.stage) == 0;
  if (!exchange || (last && work_.exchange)) return run();
  const NoSync local(exchange);
  run();
}

void BatchRun::backward(const Action& action) {
  Kept kept = std::move(kept_.extract({action.stage, action.micro_batch}).mapped());
  Tensors roots, gradients;
  incoming(action, kept, roots, gradients);
  with_exchange(action, [&] {
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
  });
  const Tensors leaves = with_gradient(kept.leaves);
  Tensors arrived;
  for (const Tensor& leaf : leaves) arrived.push_back(leaf.grad());
  send_gradients(action, leaves, arrived);
}

void BatchRun::input_gradient(const Action& action) {
  Kept& kept = kept_.at({action.stage, action.micro_batch});
  Tensors roots, gradients;
  incoming(action, kept, roots, gradients);
  const Tensors leaves = action.stage == 0 ? Tensors() : with_gradient(kept.leaves);
  kept.split.emplace(roots, gradients, leaves);
  send_gradients(action, leaves, kept.split->input_gradients());
  kept.outputs.clear();
}

void BatchRun::weight_gradient(const Action& action) {
  Kept kept = std::move(kept_.extract({action.stage, action.micro_batch}).mapped());
  with_exchange(action, [&] { kept.split->weight_gradients(); });
}

}  // namespace trireme::parallel
