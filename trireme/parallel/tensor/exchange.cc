#include "trireme/parallel/tensor/exchange.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <optional>
#include <unordered_set>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"

namespace trireme::parallel {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(const Group& of) : group(of) {}
  const Group group;
};

c10::IValue hold(const Group& group) {
  return c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
}
Group held(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<HeldGroup>(value.toCapsule())->group;
}

std::vector<Tensor> equal_parts(const Tensor& tensor, int64_t dim, const Group& group) {
  if (tensor.size(dim) % group.size() != 0)
    throw UsageError("{}: dimension {} of a tensor of shape {} has {} elements, which {} ranks do not divide",
                     own_place(group), dim, c10::str(tensor.sizes()), tensor.size(dim), group.size());
  return tensor.chunk(group.size(), dim);
}

Tensor make_move(const Tensor& tensor, Move what, int64_t dim, const Group& group) {
  if (group.size() == 1) return tensor;
  switch (what) {
    case Move::nothing:
      return tensor;
    case Move::sum: {
      const Tensor sum = tensor.clone(torch::MemoryFormat::Contiguous);
      all_reduce(sum, ReduceOp::sum, group);
      return sum;
    }
    case Move::gather: {
      Tensors all;
      all_gather(all, tensor.contiguous(), group);
      return torch::cat(all, dim);
    }
    case Move::part:
      return equal_parts(tensor, dim, group)[static_cast<size_t>(group.rank())].contiguous();
    case Move::reduce_scatter: {
      Tensors parts = equal_parts(tensor, dim, group);
      for (Tensor& part : parts) part = part.contiguous();
      const Tensor mine = torch::empty_like(parts[0]);
      reduce_scatter(mine, parts, ReduceOp::sum, group);
      return mine;
    }
  }
  throw UsageError("Move {} does not exist", static_cast<int>(what));
}

// Sums over the ranks have no graph of their own.
void refuse_second_derivative() {
  if (at::GradMode::is_enabled())
    throw UsageError("layers that are split over the ranks have no second derivative: use create_graph = false");
}

// Inside of a Function nothing is recorded, and autocast would keep weights that were cast here for later uses, which then
// had no gradient.
class WithoutCastCache {
 public:
  WithoutCastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  WithoutCastCache(const WithoutCastCache&) = delete;
  WithoutCastCache& operator=(const WithoutCastCache&) = delete;

 private:
  const bool before_ = at::autocast::is_autocast_cache_enabled();
};

class Exchange : public torch::autograd::Function<Exchange> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const Moves& moves, const Group& group) {
    context->saved_data["backward"] = static_cast<int64_t>(moves.backward);
    context->saved_data["dim"] = moves.dim;
    context->saved_data["group"] = hold(group);
    const Tensor moved = make_move(tensor, moves.forward, moves.dim, group);
    return moved.is_same(tensor) ? tensor.view_as(tensor) : moved;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative();
    const auto what = static_cast<Move>(context->saved_data["backward"].toInt());
    return {
        make_move(gradients[0], what, context->saved_data["dim"].toInt(), held(context->saved_data["group"])), {}, {}};
  }
};

// Which gradients of x, weight and bias this backward is to compute. A pipeline with Schedule::zero_bubble asks for the
// input's first and for the weights' later; the first layer needs none for its input. The same on all ranks, as the
// graphs are.
struct Wanted {
  explicit Wanted(const AutogradContext& context)
      : input(context.needs_input_grad(0)),
        weight(context.needs_input_grad(1)),
        bias(context.saved_data.at("bias").toBool() && context.needs_input_grad(2)) {}
  const bool input, weight, bias;
};

class ColumnLinear : public torch::autograd::Function<ColumnLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const Group& group) {
    const WithoutCastCache no_cache;
    Tensor y = torch::linear(x, weight, bias);
    // Under autocast y is of lower precision, and so must be what backward computes with.
    context->save_for_backward({x.to(y.scalar_type()), weight.to(y.scalar_type())});
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["group"] = hold(group);
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative();
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &dy = gradients[0];
    const Wanted wanted(*context);
    Tensor dx, dw;
    Work sum;
    if (wanted.input) {
      dx = dy.matmul(weight).contiguous();
      sum = all_reduce_async(dx, ReduceOp::sum, held(context->saved_data["group"]));
    }
    const Tensor rows = dy.reshape({-1, dy.size(-1)});
    if (wanted.weight) dw = rows.t().matmul(x.reshape({-1, x.size(-1)}));
    const Tensor db = wanted.bias ? rows.sum(0) : Tensor();
    sum.wait();
    return {dx, dw, db, {}};
  }
};

class SequenceColumnLinear : public torch::autograd::Function<SequenceColumnLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const Group& group) {
    const WithoutCastCache no_cache;
    Tensor y = torch::linear(make_move(x, Move::gather, kSequence, group), weight, bias);
    context->save_for_backward({x.to(y.scalar_type()), weight.to(y.scalar_type())});
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["group"] = hold(group);
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative();
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &dy = gradients[0];
    const Group group = held(context->saved_data["group"]);
    const Wanted wanted(*context);
    Tensors inputs, parts;
    Work gather, sum;
    if (wanted.weight) gather = all_gather_async(inputs, x.contiguous(), group);
    if (wanted.input) parts = equal_parts(dy.matmul(weight), kSequence, group);
    for (Tensor& part : parts) part = part.contiguous();
    gather.wait();
    Tensor dx, dw;
    if (wanted.input) {
      dx = torch::empty_like(parts[0]);
      sum = reduce_scatter_async(dx, parts, ReduceOp::sum, group);
    }
    const Tensor rows = dy.reshape({-1, dy.size(-1)});
    if (wanted.weight) dw = rows.t().matmul(torch::cat(inputs, kSequence).reshape({-1, x.size(-1)}));
    const Tensor db = wanted.bias ? rows.sum(0) : Tensor();
    sum.wait();
    return {dx, dw, db, {}};
  }
};

// A Function does not take an undefined tensor.
std::optional<Tensor> if_defined(const Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// Where the graph of a part of a sequence ends: behind these the ranks have exchanged what belongs together. What is inside
// of a checkpoint() was looked at when it was called.
bool is_exchange(torch::autograd::Node& node) {
  using torch::autograd::CppNode;
  return dynamic_cast<CppNode<Exchange>*>(&node) || dynamic_cast<CppNode<ColumnLinear>*>(&node) ||
         dynamic_cast<CppNode<SequenceColumnLinear>*>(&node) || node.name() == "trireme::checkpoint";
}

}  // namespace

Tensor move(const Tensor& tensor, const Moves& moves, const Group& group) {
  return group.size() == 1 ? tensor : Exchange::apply(tensor, moves, group);
}

Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Group& group) {
  return group.size() == 1 ? torch::linear(x, weight, bias) : ColumnLinear::apply(x, weight, if_defined(bias), group);
}

Tensor sequence_column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Group& group) {
  require_summed_gradients(x, group);
  return group.size() == 1 ? torch::linear(x, weight, bias)
                           : SequenceColumnLinear::apply(x, weight, if_defined(bias), group);
}

void require_summed_gradients(const Tensor& part, const Group& group) {
  if (group.size() == 1 || !torch::GradMode::is_enabled() || !part.grad_fn()) return;
  std::vector<torch::autograd::Node*> left{part.grad_fn().get()};
  std::unordered_set<torch::autograd::Node*> seen;
  while (!left.empty()) {
    torch::autograd::Node& node = *left.back();
    left.pop_back();
    if (!seen.insert(&node).second || is_exchange(node)) continue;
    const auto* const leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
    // A leaf of the part's own shape is an activation: the input of a checkpoint() or of a stage.
    if (leaf && leaf->variable.sizes() != part.sizes())
      throw UsageError(
          "{}: a parameter of shape {} was used on a part of the sequence, of shape {}, and its gradient is "
          "not summed over the ranks; use nn::ParallelLayerNorm with sequence_parallel, or "
          "nn::sequence_shared(parameter, group) in place of the parameter",
          own_place(group), c10::str(leaf->variable.sizes()), c10::str(part.sizes()));
    for (const torch::autograd::Edge& edge : node.next_edges())
      if (edge.is_valid()) left.push_back(edge.function.get());
  }
}

}  // namespace trireme::parallel
