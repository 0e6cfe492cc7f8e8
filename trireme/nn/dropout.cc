#include "trireme/nn/dropout.h"

#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme::nn {

DropoutImpl::DropoutImpl(double p, DropoutScale scale) : p_(p), scale_(scale) {
  if (!(p >= 0 && p < 1)) throw UsageError("Dropout: the probability is {}; it must be in [0, 1)", p);
}

torch::Tensor DropoutImpl::forward(const torch::Tensor& x) {
  if (p_ == 0) return x;
  const torch::Tensor y = torch::dropout(x, p_, is_training());
  return scale_ == DropoutScale::in_evaluation ? y * (1 - p_) : y;
}

}  // namespace trireme::nn
