// Losses that let a student network learn from a teacher's output, as PaddleClas has them for SSLD and its kin.
//
//   torch::Tensor t;
//   { torch::NoGradGuard no_grad;  t = teacher->forward(x); }
//   torch::Tensor loss = nn::dml_loss(student->forward(x), t);
//
// Words: s and t are the student's and the teacher's logits, [N, C]; p(z) = softmax(z) over the classes; KL(p || q) =
// sum_c p[c] * (log p[c] - log q[c]). All return one number in float (double for double logits), computed through
// log-softmax, so that sure teachers give no infinities. Gradients flow to all inputs that want them: two networks that
// teach each other are both taught. Shapes that differ are a UsageError with both.
#pragma once

#include <torch/types.h>

#include <optional>

#include "trireme/nn/losses.h"

namespace trireme::nn {

/// DistillationCELoss: the cross entropy of s with the soft labels p(t), smoothed by epsilon.
torch::Tensor distillation_ce_loss(const torch::Tensor& s, const torch::Tensor& t, CrossEntropyOptions options = {});

// DistillationGTCELoss is ce_loss(s, labels), from losses.h.

struct DmlOptions {
  enum class Activation { softmax, sigmoid };
  Activation activation = Activation::softmax;
};

/// DMLLoss: mean over n of (KL(p(s) || p(t)) + KL(p(t) || p(s))) / 2. (PaddleClas writes it as a mean over n and c
/// times the number of classes, which is the same.) With sigmoid p(z)[c] = sigmoid(z[c]), each class for itself.
torch::Tensor dml_loss(const torch::Tensor& s, const torch::Tensor& t, DmlOptions options = {});

struct DistanceOptions {
  enum class Mode { l1, l2, smooth_l1 };
  Mode mode = Mode::l2;
};

/// DistanceLoss: mean of |x - y|, of (x - y)^2, or of smooth-L1 (quadratic below 1). For logits or feature maps alike.
torch::Tensor distance_loss(const torch::Tensor& x, const torch::Tensor& y, DistanceOptions options = {});

struct KlDivOptions {
  double temperature = 4;
};

/// KLDivLoss: T^2 * mean over n of KL(p(t / T) || p(s / T)).
torch::Tensor kl_div_loss(const torch::Tensor& s, const torch::Tensor& t, KlDivOptions options = {});

struct DkdOptions {
  double temperature = 1;
  double alpha = 1;
  double beta = 1;
};

/// DKDLoss (arXiv 2203.08679): T^2 * mean over n of alpha * KL(b(t / T) || b(s / T)) + beta * KL(r(t / T) || r(s / T)),
/// b(z) = (p of the labelled class, p of all others together), r(z) = softmax over the other classes. Hard labels.
torch::Tensor dkd_loss(const torch::Tensor& s, const torch::Tensor& t, const torch::Tensor& labels,
                       DkdOptions options = {});

struct WslOptions {
  double temperature = 2;
};

/// WSLLoss (arXiv 2102.00650): T^2 * mean over n of w * H, where H is the cross entropy of p(s / T) with p(t / T) and
/// w = 1 - exp(-CE(s, label) / CE(t, label)) carries no gradient: what the teacher knows better weighs more.
/// Without labels (PaddleClas: also with its use_target_as_gt) the teacher's first choice is the label.
torch::Tensor wsl_loss(const torch::Tensor& s, const torch::Tensor& t, const std::optional<torch::Tensor>& labels,
                       WslOptions options = {});

struct SkdOptions {
  double temperature = 1;
  double multiplier = 2;
  double alpha = 0.9;
};

/// SKDLoss (arXiv 2010.07485): both logits are brought to mean 0 and variance 1 over the classes and multiplied by
/// `multiplier`; then alpha * T^2 * H(p(t / T), p(s / T)) + (1 - alpha) * CE(s, label), means over n. Labels as for
/// wsl_loss().
torch::Tensor skd_loss(const torch::Tensor& s, const torch::Tensor& t, const std::optional<torch::Tensor>& labels,
                       SkdOptions options = {});

/// RkdDistance and RKdAngle (arXiv 1904.05068) compare what samples are to each other, so that the two features, of
/// shapes [N, …], need not be equally wide. Feature maps are best pooled before: distances are all pairs, angles all
/// triples of the batch.
///
/// Smooth-L1 between the pairwise distances, each divided by its own mean.
torch::Tensor rkd_distance_loss(const torch::Tensor& student, const torch::Tensor& teacher);
/// Smooth-L1 between the cosines of the angles of all triples.
torch::Tensor rkd_angle_loss(const torch::Tensor& student, const torch::Tensor& teacher);

struct DistOptions {
  double beta = 1;
  double gamma = 1;
};

/// DISTLoss (arXiv 2205.10536): beta * (1 - mean over samples of the correlation of p(s) and p(t) over the classes) +
/// gamma * (the same over the samples for each class).
torch::Tensor dist_loss(const torch::Tensor& s, const torch::Tensor& t, DistOptions options = {});

}  // namespace trireme::nn
