#include "trireme/parallel/sync_batch_norm.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/parallel/batch_norm_operator.h"

namespace trireme {
namespace {

template <typename Layer>
bool mark(const torch::nn::Module& module, const std::string& name, const Group& group) {
  const auto* layer = module.as<Layer>();
  if (!layer) return false;
  const torch::Tensor& known_by = layer->weight.defined() ? layer->weight : layer->running_mean;
  if (!known_by.defined())
    throw UsageError(
        "batch normalisation {} has neither weight nor running statistics, so it cannot be marked; give it "
        "affine(true) or track_running_stats(true)",
        name.empty() ? "(the module itself)" : name);
  parallel::join_batch_norm(known_by, group);
  return true;
}

}  // namespace

int convert_sync_batch_norm(torch::nn::Module& module, const Group& group) {
  int count = 0;
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    const torch::nn::Module& child = *item.value();
    count += mark<torch::nn::BatchNorm1dImpl>(child, item.key(), group) ||
             mark<torch::nn::BatchNorm2dImpl>(child, item.key(), group) ||
             mark<torch::nn::BatchNorm3dImpl>(child, item.key(), group);
  }
  return count;
}

bool has_sync_batch_norm(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters(), buffers = module.buffers();
  const auto marked = [](const torch::Tensor& tensor) { return parallel::batch_norm_group(tensor).is_member(); };
  return std::any_of(parameters.begin(), parameters.end(), marked) ||
         std::any_of(buffers.begin(), buffers.end(), marked);
}

}  // namespace trireme
