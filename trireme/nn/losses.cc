#include "trireme/nn/losses.h"

#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme::nn {
namespace {

using torch::Tensor;

void check_epsilon(double epsilon) {
  if (!(epsilon >= 0 && epsilon < 1)) throw UsageError("label smoothing: epsilon {} must lie in [0, 1)", epsilon);
}

void check_logits(const Tensor& logits) {
  if (logits.dim() != 2)
    throw UsageError("loss: logits of shape {}; expected [samples, classes]", c10::str(logits.sizes()));
}

[[noreturn]] void refuse(const Tensor& logits, const Tensor& labels) {
  throw UsageError(
      "loss: labels {} of shape {} do not fit logits of shape {}; expected class numbers (int64) of shape "
      "[{}], or distributions (floating-point) of the logits' shape",
      c10::toString(labels.scalar_type()), c10::str(labels.sizes()), c10::str(logits.sizes()), logits.size(0));
}

/// Class numbers as [N], or a distribution as [N, C] in the type of the logits.
Tensor checked_labels(const Tensor& logits, const Tensor& labels) {
  if (labels.is_floating_point()) {
    if (labels.sizes() != logits.sizes()) refuse(logits, labels);
    return labels.to(logits.scalar_type());
  }
  const bool fits = labels.dim() >= 1 && labels.dim() <= 2 && labels.numel() == logits.size(0);
  if (!fits || labels.size(0) != logits.size(0)) refuse(logits, labels);
  return labels.reshape({-1}).to(torch::kLong);
}

Tensor smoothed(const Tensor& targets, double epsilon) {
  return epsilon == 0 ? targets : (1 - epsilon) * targets + epsilon / static_cast<double>(targets.size(-1));
}

/// What multi-label targets hold: one row of targets, and the shares of positives with weight_ratio.
struct Rows {
  Tensor targets, shares;
};

Rows rows_of(const Tensor& logits, const Tensor& targets, bool with_shares) {
  const Tensor all = (targets.dim() == 2 ? targets.unsqueeze(1) : targets).to(logits.scalar_type());
  const int64_t rows = with_shares ? 2 : 1;
  if (all.dim() != 3 || all.size(0) != logits.size(0) || all.size(1) < rows || all.size(2) != logits.size(1))
    throw UsageError("multi_label_loss: targets of shape {} do not fit logits of shape {}; expected [{}, {}, {}]",
                     c10::str(targets.sizes()), c10::str(logits.sizes()), logits.size(0), rows, logits.size(1));
  return {.targets = all.select(1, 0), .shares = with_shares ? all.select(1, 1) : Tensor()};
}

Tensor weights_of(const Rows& rows) {
  const Tensor positive = rows.targets > 0.5;
  const Tensor weights = torch::where(positive, 1 - rows.shares, rows.shares).exp();
  return weights * (rows.targets >= 0).to(weights.scalar_type());
}

}  // namespace

Tensor widened(const Tensor& logits) {
  const auto type = logits.scalar_type();
  return type == torch::kHalf || type == torch::kBFloat16 ? logits.to(torch::kFloat) : logits;
}

Tensor ce_loss(const Tensor& logits, const Tensor& labels, CrossEntropyOptions options) {
  check_epsilon(options.epsilon);
  check_logits(logits);
  const Tensor wide = widened(logits);
  return at::cross_entropy_loss(wide, checked_labels(wide, labels), /*weight=*/{}, at::Reduction::Mean,
                                /*ignore_index=*/-100, options.epsilon);
}

Tensor multi_label_loss(const Tensor& logits, const Tensor& targets, MultiLabelOptions options) {
  check_epsilon(options.epsilon);
  check_logits(logits);
  const Tensor wide = widened(logits);
  Rows rows = rows_of(wide, targets, options.weight_ratio);
  rows.targets = smoothed(rows.targets, options.epsilon);
  Tensor cost = torch::binary_cross_entropy_with_logits(wide, rows.targets, {}, {}, at::Reduction::None);
  if (options.weight_ratio) cost = cost * weights_of(rows);
  return (options.sum_classes ? cost.sum(1) : cost).mean();
}

Tensor bce_loss(const Tensor& logits, const Tensor& labels, BinaryOptions options) {
  check_epsilon(options.epsilon);
  check_logits(logits);
  const Tensor wide = widened(logits);
  Tensor targets = checked_labels(wide, labels);
  if (!targets.is_floating_point()) targets = torch::one_hot(targets, wide.size(1)).to(wide.scalar_type());
  targets = (smoothed(targets, options.epsilon) > options.target_threshold).to(wide.scalar_type());
  return torch::binary_cross_entropy_with_logits(wide, targets);
}

}  // namespace trireme::nn
