// The layers of a Sequential are exchanged in its list of calls alone. Its children, from which libtorch makes state
// dicts and which train(), to() and apply() reach, stay the layers of the user; a FusedCall asks them at each call how
// they are set.
#include <torch/torch.h>

#include <optional>
#include <set>
#include <typeinfo>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/nn/batch_norm_act.h"
#include "trireme/nn/fused/batch_norm_act.h"
#include "trireme/nn/fused/gpu_layers.h"

namespace trireme::nn {
namespace {

using torch::nn::AnyModule;
using torch::nn::SequentialImpl;

/// What a Sequential calls at the place of a normalisation: it and the activation behind it.
class FusedCallImpl : public torch::nn::Module {
 public:
  FusedCallImpl(std::shared_ptr<torch::nn::BatchNorm2dImpl> norm, Activation activation,
                std::optional<AnyModule> activation_layer)
      : norm_(std::move(norm)), activation_(activation), activation_layer_(std::move(activation_layer)) {
    // Only for those who put this call into another Sequential: its parameters must not be lost there.
    register_module("norm", norm_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    if (fused::can_fuse(*norm_, x, activation_, {})) return fused::batch_norm_act(*norm_, x, activation_, {});
    if (const auto y = fused::gpu::norm_add_act(*norm_, x, activation_, {})) return *y;
    const torch::Tensor y = norm_->forward(x);
    return activation_layer_ ? activation_layer_->forward(y) : y;
  }

  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>&) const override {
    throw UsageError(
        "clone() of a Sequential after convert_batch_norm_act(): clone the module first, then convert both");
  }

 private:
  std::shared_ptr<torch::nn::BatchNorm2dImpl> norm_;
  Activation activation_;
  std::optional<AnyModule> activation_layer_;
};

/// Exactly this class: one derived from it may compute something else.
template <typename Layer>
bool is_exactly(const torch::nn::Module& layer) {
  return typeid(layer) == typeid(Layer);
}

std::optional<Activation> activation_of(const torch::nn::Module& layer) {
  if (is_exactly<torch::nn::ReLUImpl>(layer)) return Activation::relu;
  if (is_exactly<torch::nn::ReLU6Impl>(layer)) return Activation::relu6;
  if (is_exactly<torch::nn::SiLUImpl>(layer)) return Activation::silu;
  return std::nullopt;
}

/// How many calls of this Sequential are fused then.
int convert(SequentialImpl& layers) {
  int count = 0;
  for (auto call = layers.begin(); call != layers.end(); ++call) {
    const std::shared_ptr<torch::nn::Module> layer = call->ptr();
    if (is_exactly<FusedCallImpl>(*layer)) ++count;
    if (!is_exactly<torch::nn::BatchNorm2dImpl>(*layer)) continue;
    const auto next = call + 1;
    const auto activation = next == layers.end() ? std::nullopt : activation_of(*next->ptr());
    *call = AnyModule(std::make_shared<FusedCallImpl>(std::static_pointer_cast<torch::nn::BatchNorm2dImpl>(layer),
                                                      activation.value_or(Activation::none),
                                                      activation ? std::optional(*next) : std::nullopt));
    if (activation) *next = AnyModule(torch::nn::Identity());
    ++count;
  }
  return count;
}

}  // namespace

int convert_batch_norm_act(torch::nn::Module& module) {
  int count = 0, norms = 0;
  std::set<const torch::nn::Module*> seen;  // a module may be registered in several places
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    torch::nn::Module& layer = *item.value();
    if (!seen.insert(&layer).second) continue;
    if (is_exactly<SequentialImpl>(layer)) count += convert(*layer.as<SequentialImpl>());
    norms += layer.as<torch::nn::BatchNorm2dImpl>() != nullptr;
  }
  if (count == 0)
    throw UsageError(
        "convert_batch_norm_act: {} has {} BatchNorm2d, none of them in a torch::nn::Sequential, where alone they can "
        "be exchanged; use nn::BatchNormAct in the module's own code",
        module.name(), norms);
  return count;
}

}  // namespace trireme::nn
