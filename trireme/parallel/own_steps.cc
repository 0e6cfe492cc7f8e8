#include "trireme/parallel/own_steps.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/parallel/parameter_check.h"

namespace trireme::parallel {
namespace {

bool are_parameters(const torch::autograd::edge_list& inputs, const std::vector<ModelParameter>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [&](const ModelParameter& parameter) {
    return !inputs.empty() && inputs.front().function.get() == parameter.accumulator.get();
  });
}

}  // namespace

// All is well where the program averages by itself.
void OwnSteps::on_local_gradient(LocalGradients& local) {
  if (!std::exchange(stepped_, false)) return;
  local.forget_weights();
  if (std::has_single_bit(++steps_))
    require_equal_parameters(
        module_, group_,
        fmt::format("backward() under no_sync(), after {} steps with gradients that no backward() has averaged (end "
                    "no_sync() for the last backward() before the optimizer steps)",
                    steps_),
        NonFinite::allowed);
}

std::optional<uint64_t> OwnSteps::before_grad(const torch::autograd::edge_list& inputs,
                                              const std::vector<ModelParameter>& parameters) {
  if (!are_parameters(inputs, parameters)) return std::nullopt;
  const bool stepped = by_hand_ && by_hand_->value_has_changed(parameters);
  by_hand_.emplace(parameters, [](size_t) { return true; });
  if (!stepped || !std::has_single_bit(++steps_by_hand_)) return std::nullopt;
  if (!has_averaged_) return steps_by_hand_;
  if (std::exchange(look_, true) && !std::exchange(has_warned_, true))
    log_warning(
        "{} steps with gradients of torch::autograd::grad() since the last averaged backward(): they are of this rank "
        "alone, and whether the ranks' weights are still equal shows only in the next averaged backward()",
        steps_by_hand_);
  return std::nullopt;
}

void OwnSteps::require_equal_by_hand(uint64_t steps) const {
  require_equal_parameters(
      module_, group_,
      fmt::format("torch::autograd::grad(), whose gradients are of this rank alone, before step {} without an averaged "
                  "backward(); all_reduce() them, or call backward()",
                  steps + 1),
      NonFinite::allowed);
}

bool OwnSteps::begin_averaged() {
  note_averaged();
  return std::exchange(look_, false);
}

void OwnSteps::note_averaged() {
  has_averaged_ = true;
  by_hand_.reset();
}

}  // namespace trireme::parallel
