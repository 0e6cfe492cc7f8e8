#include "trireme/parallel/outside_leaves.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "trireme/comm/members.h"
#include "trireme/core/log.h"
#include "trireme/parallel/same_model.h"
#include "trireme/parallel/wrapped_module.h"

namespace trireme::parallel {
namespace {

std::vector<OutsideLeaves::Leaf> outside_leaves() {
  const std::unordered_set<const void*> inside = parameters_of_wrapped_modules();
  std::vector<OutsideLeaves::Leaf> leaves;
  for (auto* const node : *torch::autograd::get_current_graph_task_nodes_in_graph()) {
    const auto* const accumulator = dynamic_cast<torch::autograd::AccumulateGrad*>(node);
    if (accumulator && !inside.contains(accumulator->variable.unsafeGetTensorImpl()))
      leaves.push_back({accumulator->variable, accumulator->variable.detach().clone()});
  }
  return leaves;
}

}  // namespace

void OutsideLeaves::look(uint64_t backward, const Group& group) {
  if (backward == 1) seen_ = outside_leaves();
  if (backward != 2) return;
  const std::vector<Leaf> before = std::exchange(seen_, {});
  torch::Tensor largest;
  for (const Leaf& leaf : outside_leaves()) {
    const auto was_stepped = [&](const Leaf& other) {
      return other.tensor.is_same(leaf.tensor) && !other.values.equal(leaf.values);
    };
    const bool is_trained = std::any_of(before.begin(), before.end(), was_stepped);
    if (is_trained && (!largest.defined() || leaf.tensor.numel() > largest.numel())) largest = leaf.tensor;
  }
  if (largest.defined() && group.rank() == 0)
    log_warning(
        "{}: a tensor {} that is in no wrapped module gets a gradient in each backward(); nothing averages it, so the "
        "ranks' copies of it drift apart: register it (or its layer) in the module before that is wrapped",
        own_place(group), describe_tensor(largest));
}

}  // namespace trireme::parallel
