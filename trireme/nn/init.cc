#include "trireme/nn/init.h"

#include <torch/torch.h>

#include <cmath>

namespace trireme::nn {
namespace {

/// action(layer) for every layer of the type; then its bias is 0. Module::modules() would not do: it cannot be called
/// in a constructor, where networks call this.
template <typename Layer, typename Action>
void initialise(torch::nn::Module& root, const Action& action) {
  const torch::NoGradGuard no_grad;
  if (auto* layer = root.as<Layer>()) {
    action(*layer);
    if (layer->bias.defined()) layer->bias.zero_();
  }
  for (const auto& child : root.children()) initialise<Layer>(*child, action);
}

double fan_of(const torch::nn::Conv2dImpl& conv, Fan fan) {
  const int64_t kernel = conv.weight.size(2) * conv.weight.size(3);
  if (fan == Fan::out) return static_cast<double>(kernel * conv.weight.size(0));
  return static_cast<double>(kernel * conv.weight.size(1) * (fan == Fan::in ? 1 : conv.options.groups()));
}

}  // namespace

void kaiming_convs(torch::nn::Module& root, Fan fan) {
  initialise<torch::nn::Conv2dImpl>(root,
                                    [fan](auto& conv) { conv.weight.normal_(0, std::sqrt(2 / fan_of(conv, fan))); });
}

void normal_linears(torch::nn::Module& root, double std) {
  initialise<torch::nn::LinearImpl>(root, [std](auto& linear) { linear.weight.normal_(0, std); });
}

void xavier_linears(torch::nn::Module& root) {
  initialise<torch::nn::LinearImpl>(root, [](auto& linear) { torch::nn::init::xavier_uniform_(linear.weight); });
}

}  // namespace trireme::nn
