#include "trireme/optim/master_weights.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/optim/tensors.h"

namespace trireme::optim {
namespace {

using torch::Tensor;

void lower(Tensor& tensor, c10::ScalarType dtype) {
  if (tensor.defined() && tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
}

Tensor make_master(const Tensor& weight) {
  if (!is_low_precision(weight.scalar_type())) return weight;
  return weight.detach().to(torch::kFloat).requires_grad_(weight.requires_grad());
}

// A gradient of the old type would not fit any more.
void raise(Tensor& tensor, const Tensor& full) {
  tensor.mutable_grad().reset();
  tensor.set_data(full);
}

}  // namespace

void lower_precision(torch::nn::Module& module, c10::ScalarType dtype) {
  if (!is_low_precision(dtype))
    throw UsageError("lower_precision: dtype {} is neither BFloat16 nor Half", c10::toString(dtype));
  torch::NoGradGuard no_grad;
  if (!is_norm(module)) {
    for (auto& item : module.named_parameters(/*recurse=*/false)) lower(item.value(), dtype);
    for (auto& item : module.named_buffers(/*recurse=*/false)) lower(item.value(), dtype);
  }
  for (auto& child : module.named_children()) lower_precision(*child.value(), dtype);
}

MasterWeights::MasterWeights(const std::vector<Tensor>& parameters) : weights_(parameters) {
  for (const Tensor& weight : weights_) {
    const auto [master, is_new] = master_of_.try_emplace(weight.unsafeGetTensorImpl());
    if (is_new) master->second = make_master(weight);
    masters_.push_back(master->second);
  }
  split_ = mark_split_like(masters_, weights_);
  note_versions();
}

MasterWeights::Version MasterWeights::version_of(const Tensor& weight) {
  return {weight.const_data_ptr(), weight._version()};
}

void MasterWeights::note_versions() {
  versions_.clear();
  for (const Tensor& weight : weights_) versions_.push_back(version_of(weight));
}

// A weight that was written but holds what its master rounds to (averages were applied and taken back) keeps the
// master's digits.
void MasterWeights::follow_weights() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const Tensor &weight = weights_[i], &master = masters_[i];
    if (weight.is_same(master) || version_of(weight) == versions_[i]) continue;
    versions_[i] = version_of(weight);
    if (!torch::equal(weight, master.to(weight.scalar_type()))) master.copy_(weight);
  }
}

const Tensor& MasterWeights::master_of(const Tensor& parameter) const {
  const auto found = master_of_.find(parameter.unsafeGetTensorImpl());
  if (found == master_of_.end())
    throw UsageError("MasterWeights: a parameter of shape {} has no master; make them from the same model",
                     c10::str(parameter.sizes()));
  return found->second;
}

void MasterWeights::adopt(torch::optim::Optimizer& optimizer) const {
  if (!optimizer.state().empty())
    throw UsageError(
        "MasterWeights: the optimizer has state for {} parameters already; adopt() it before its first step",
        optimizer.state().size());
  for (const Tensor& parameter : parameters_of(optimizer)) master_of(parameter);
  for (auto& group : optimizer.param_groups())
    for (Tensor& parameter : group.params()) parameter = master_of(parameter);
}

// One call for all gradients that are new to their masters. A weight with two names is listed twice, so each gradient is
// dropped at once.
void MasterWeights::take_gradients() {
  torch::NoGradGuard no_grad;
  std::map<CallKey, std::pair<std::vector<Tensor>, std::vector<Tensor>>> calls;
  for (size_t i = 0; i < weights_.size(); ++i) {
    Tensor& grad = weights_[i].mutable_grad();
    if (weights_[i].is_same(masters_[i]) || !grad.defined()) continue;
    Tensor& target = masters_[i].mutable_grad();
    if (target.defined()) {
      target = target + grad;
    } else if (grad.is_view()) {
      target = grad.to(torch::kFloat);
    } else {
      target = torch::empty_like(grad, grad.options().dtype(torch::kFloat));
      auto& [targets, grads] = calls[call_key(grad)];
      targets.push_back(target);
      grads.push_back(grad);
    }
    if (grad.is_view()) {
      grad.detach().zero_();  // it lies in a bucket that is exchanged
    } else {
      grad.reset();
    }
  }
  for (auto& [key, call] : calls) at::_foreach_copy_(call.first, call.second);
}

void MasterWeights::write_back() {
  torch::NoGradGuard no_grad;
  std::map<CallKey, std::pair<std::vector<Tensor>, std::vector<Tensor>>> calls;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].is_same(masters_[i])) continue;
    auto& [weights, masters] = calls[call_key(weights_[i])];
    weights.push_back(weights_[i]);
    masters.push_back(masters_[i]);
  }
  for (auto& [key, call] : calls) at::_foreach_copy_(call.first, call.second);
  note_versions();
}

void MasterWeights::give_back() {
  follow_weights();
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < weights_.size(); ++i)
    if (is_low_precision(weights_[i].scalar_type())) raise(weights_[i], masters_[i].detach());
}

void raise_precision(torch::nn::Module& module, MasterWeights* masters) {
  torch::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters())
    if (!piece_of(item.value()).is_same(item.value()))
      throw UsageError(
          "raise_precision: parameter {} is split by ShardedDataParallel, which keeps its memory; save a Checkpoint "
          "and restore it into a model in float",
          item.key());
  if (masters != nullptr) masters->give_back();
  for (Tensor& tensor : module.parameters())
    if (is_low_precision(tensor.scalar_type())) raise(tensor, tensor.to(torch::kFloat));
  for (Tensor& tensor : module.buffers())
    if (tensor.defined() && is_low_precision(tensor.scalar_type())) raise(tensor, tensor.to(torch::kFloat));
}

}  // namespace trireme::optim
