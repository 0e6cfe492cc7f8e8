// Losses of classification, as PaddleClas computes them. All return one number, the mean over the batch, in float (in
// double for double logits): logits of low precision are widened first.
//
//   torch::Tensor loss = nn::ce_loss(logits, labels, {.epsilon = 0.1});
//   loss = nn::multi_label_loss(logits, targets);
//
// Words: logits [N, C] (N samples, C classes), not normalised. A *hard* label is a class number, int64 of shape [N] or
// [N, 1]; a *soft* one is a distribution over the classes, floating-point of shape [N, C].
// Shapes that do not fit are a UsageError with both. Class numbers are not looked at here: one outside [0, C) is
// torch's error on a CPU, and stops the program on a GPU.
#pragma once

#include <torch/types.h>

namespace trireme::nn {

struct CrossEntropyOptions {
  double epsilon = 0;  ///< label smoothing, in [0, 1): the target t becomes (1 - epsilon) * t + epsilon / C
};

/// CELoss: mean over n of  -sum_c t[n,c] * log softmax(logits[n])[c],  t the one-hot of a hard label or a soft one.
///
/// Deviation: PaddleClas applies a softmax to soft labels unless epsilon is set. Here a soft label is taken as it is;
/// for a teacher's logits use distillation_ce_loss().
torch::Tensor ce_loss(const torch::Tensor& logits, const torch::Tensor& labels, CrossEntropyOptions options = {});

struct MultiLabelOptions {
  double epsilon = 0;         ///< smooths the targets as ce_loss() does
  bool sum_classes = false;   ///< PaddleClas' size_sum: sum over the classes instead of their mean
  bool weight_ratio = false;  ///< the targets carry the share of positives of each class; the rare side weighs more
};

/// MultiLabelLoss: mean over n, c of the binary cross entropy of sigmoid(logits[n,c]) with the target t in [0, 1].
///
/// Targets [N, C], [N, 1, C], or [N, 2, C] with the shares r in the second row. With weight_ratio each term is
/// multiplied by exp(1 - r) for t > 0.5 and by exp(r) else; a target below 0 is not counted.
torch::Tensor multi_label_loss(const torch::Tensor& logits, const torch::Tensor& targets,
                               MultiLabelOptions options = {});

struct BinaryOptions {
  double epsilon = 0;
  double target_threshold = 0.2;  ///< what the smoothed target must exceed to count as 1
};

/// BCELoss: a hard or soft label is smoothed, turned to 0 or 1 at the threshold, and compared class by class:
/// mean over n, c of the binary cross entropy of sigmoid(logits[n,c]).
torch::Tensor bce_loss(const torch::Tensor& logits, const torch::Tensor& labels, BinaryOptions options = {});

/// Float for low precision, else as it is: what the losses compute in. Gradients flow through.
torch::Tensor widened(const torch::Tensor& logits);

}  // namespace trireme::nn
