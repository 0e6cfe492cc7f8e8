#include "trireme/parallel/local_gradients.h"

#include <algorithm>
#include <utility>

#include "trireme/comm/members.h"
#include "trireme/core/log.h"

namespace trireme::parallel {
namespace {

constexpr int kManyBackwards = 1000;  // more than anyone adds up for one step

}  // namespace

void LocalStreak::count(const Group& group) {
  if (++backwards_ == kManyBackwards && !std::exchange(warned_, true))
    log_warning(
        "{}: {} calls of backward() in a row ran under no_sync(): no rank has averaged their gradients; end the guard "
        "of no_sync() before the last backward() of each step",
        own_place(group), backwards_);
}

void LocalGradients::follow(const std::vector<ModelParameter>& parameters) {
  has_.assign(parameters.size(), 0);
  for (size_t i = 0; i < parameters.size(); ++i)
    has_[i] = std::count(names_.begin(), names_.end(), parameters[i].name) > 0 ? 1 : 0;
  weights_.reset();
  gradients_.reset();
}

void LocalGradients::note(size_t index, const ModelParameter& parameter) {
  if (has(index)) return;
  has_[index] = 1;
  names_.push_back(parameter.name);
}

void LocalGradients::clear() {
  std::fill(has_.begin(), has_.end(), 0);
  names_.clear();
  weights_.reset();
  gradients_.reset();
}

void LocalGradients::end_of_backward(const std::vector<ModelParameter>& parameters) {
  if (names_.empty()) return;
  if (!weights_) weights_.emplace(parameters, [this](size_t i) { return has(i); });
  gradients_.emplace(parameters);
}

bool LocalGradients::weights_have_changed(const std::vector<ModelParameter>& parameters) const {
  if (!weights_) return false;
  return weights_->versions_have_changed(parameters) ||
         (any_is_gone(parameters) && weights_->value_has_changed(parameters));
}

// Not by versions: one rank may write and restore its weights, as for an evaluation, and what follows is a collective.
bool LocalGradients::were_stepped(const std::vector<ModelParameter>& parameters) const {
  return weights_ && any_is_gone(parameters) && weights_->value_has_changed(parameters);
}

bool LocalGradients::any_is_gone(const std::vector<ModelParameter>& parameters) const {
  for (size_t i = 0; gradients_ && i < parameters.size(); ++i)
    if (has(i) && (!parameters[i].tensor.grad().defined() || gradients_->has_changed(i, parameters[i]))) return true;
  return false;
}

}  // namespace trireme::parallel
