#include "trireme/optim/ema.h"

#include <torch/torch.h>

#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/optim/tensors.h"

namespace trireme::optim {
namespace {

using torch::Tensor;

Tensor first_average(const Tensor& live) {
  return live.detach().to(is_low_precision(live.scalar_type()) ? torch::kFloat : live.scalar_type(),
                          /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

Ema::Ema(const torch::nn::Module& model, Options options) : options_(options) {
  if (!(options.decay >= 0 && options.decay <= 1))
    throw UsageError("Ema: decay {} must lie in [0, 1]; 0.9999 is usual", options.decay);
  std::vector<Tensor> originals, averages;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    live_.push_back(tensor);  // itself: its memory may be exchanged (Module::to(), set_data())
    originals.push_back(tensor);
    averages.push_back(averages_.emplace_back(name, first_average(tensor)).second);
  };
  for (const auto& item : model.named_parameters()) add(item.key(), piece_of(item.value()));
  for (const auto& item : model.named_buffers()) add(item.key(), item.value());
  split_ = mark_split_like(averages, originals);
}

void Ema::follow_weights() {
  if (begun_ || applied_) return;
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < live_.size(); ++i) averages_[i].second.copy_(live_[i]);
}

void Ema::update() {
  if (applied_) throw UsageError("Ema: update() while the averages are applied would average them with themselves");
  begun_ = true;
  torch::NoGradGuard no_grad;
  struct Call {
    std::vector<Tensor> averages, weights;
  };
  std::map<CallKey, Call> calls;
  for (size_t i = 0; i < live_.size(); ++i) {
    Tensor& average = averages_[i].second;
    if (average.is_floating_point()) {
      calls[call_key(average)].averages.push_back(average);
      calls[call_key(average)].weights.push_back(live_[i].to(average.scalar_type()));
    } else {
      average.copy_(live_[i]);
    }
  }
  for (auto& [key, call] : calls) at::_foreach_lerp_(call.averages, call.weights, 1 - options_.decay);
}

Ema::Applied::Applied(Ema& ema) : ema_(ema) {
  if (ema.applied_) throw UsageError("Ema: apply() while the averages are applied already; let the first result end");
  ema.follow_weights();
  torch::NoGradGuard no_grad;
  // First all copies: a tensor that has two names is to be saved before the first of them is overwritten.
  for (const Tensor& live : ema.live_) weights_.push_back(live.clone());
  for (size_t i = 0; i < ema.live_.size(); ++i) ema.live_[i].copy_(ema.averages_[i].second);
  ema.applied_ = true;
}

Ema::Applied::~Applied() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < weights_.size(); ++i) ema_.live_[i].copy_(weights_[i]);
  ema_.applied_ = false;
}

void Ema::load_state(const NamedTensors& state) {
  std::unordered_map<std::string, Tensor> by_name(state.begin(), state.end());
  for (const auto& [name, average] : averages_) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) throw UsageError("Ema: the state has no '{}'; was it saved from another model?", name);
    if (found->second.sizes() != average.sizes())
      throw UsageError("Ema: '{}' has shape {} in the state and {} in the model; was it saved from another model?",
                       name, c10::str(found->second.sizes()), c10::str(average.sizes()));
  }
  begun_ = true;
  torch::NoGradGuard no_grad;
  for (auto& [name, average] : averages_) average.copy_(by_name.at(name));
}

}  // namespace trireme::optim
