#include "trireme/parallel/gradient_hook.h"

#include <torch/torch.h>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/parallel/power_sgd.h"

namespace trireme {
namespace {

GradientHook rounded_gradients(torch::ScalarType type) {
  return [type](const GradientBucket& bucket, const Group& group) {
    if (!bucket.flat.is_floating_point() || bucket.flat.element_size() <= 2)
      return all_reduce_async(bucket.flat, ReduceOp::avg, group);
    const torch::Tensor rounded = bucket.flat.to(type);
    const torch::Tensor flat = bucket.flat;
    return all_reduce_async(rounded, ReduceOp::avg, group).then([flat, rounded] { flat.copy_(rounded); });
  };
}

}  // namespace

GradientHook average_gradients() {
  return [](const GradientBucket& bucket, const Group& group) {
    return all_reduce_async(bucket.flat, ReduceOp::avg, group);
  };
}

GradientHook compressed_gradients(GradientCompression compression, int rank) {
  switch (compression) {
    case GradientCompression::none:
      return average_gradients();
    case GradientCompression::bf16:
      return rounded_gradients(torch::kBFloat16);
    case GradientCompression::fp16:
      return rounded_gradients(torch::kHalf);
    case GradientCompression::powersgd:
      return parallel::power_sgd(rank);
  }
  throw UsageError("GradientCompression {} does not exist", static_cast<int>(compression));
}

}  // namespace trireme
