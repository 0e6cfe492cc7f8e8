#include "trireme/nn/distillation_losses.h"

#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme::nn {
namespace {

using torch::Tensor;

constexpr double kOut = 1000;  // taken off a logit so that its class gets no share; finite, as inf - inf is NaN

/// Student and teacher in the type they are compared in.
struct Pair {
  Tensor s, t;
};

Pair checked(const char* who, const Tensor& s, const Tensor& t) {
  if (s.sizes() != t.sizes())
    throw UsageError("{}: the student's output has shape {}, the teacher's {}; do both have the same classes?", who,
                     c10::str(s.sizes()), c10::str(t.sizes()));
  return {widened(s), widened(t)};
}

Pair checked_logits(const char* who, const Tensor& s, const Tensor& t) {
  if (s.dim() != 2) throw UsageError("{}: logits of shape {}; expected [samples, classes]", who, c10::str(s.sizes()));
  return checked(who, s, t);
}

void check_temperature(const char* who, double temperature) {
  if (!(temperature > 0)) throw UsageError("{}: temperature {} must be above 0", who, temperature);
}

/// Mean over the samples of KL(exp(log_p) || exp(log_q)).
Tensor kl(const Tensor& log_p, const Tensor& log_q) {
  return torch::kl_div(log_q, log_p, at::Reduction::Sum, /*log_target=*/true) / static_cast<double>(log_p.size(0));
}

/// Cross entropy of each sample of softmax(s / T) with softmax(t / T).
Tensor soft_entropy(const Pair& logits, double temperature) {
  return -((logits.t / temperature).softmax(1) * (logits.s / temperature).log_softmax(1)).sum(1);
}

Tensor hard_labels(const char* who, const Pair& logits, const std::optional<Tensor>& labels) {
  if (!labels) return logits.t.argmax(1);
  if (labels->is_floating_point() || labels->numel() != logits.s.size(0))
    throw UsageError("{}: labels {} of shape {}; expected class numbers (int64) of shape [{}]", who,
                     c10::toString(labels->scalar_type()), c10::str(labels->sizes()), logits.s.size(0));
  return labels->reshape({-1}).to(torch::kLong);
}

/// The log-probabilities of the labelled class and of all others together, [N, 2].
Tensor log_binary(const Tensor& log_p, const Tensor& mask) {
  const Tensor labelled = (log_p * mask).sum(1);
  const Tensor others = (log_p - kOut * mask).logsumexp(1);
  return torch::stack({labelled, others}, 1);
}

Tensor normalised(const Tensor& logits) {
  return torch::layer_norm(logits, {logits.size(1)}, {}, {}, 1e-7);
}

Pair checked_features(const char* who, const Tensor& student, const Tensor& teacher) {
  if (student.dim() < 2 || teacher.dim() < 2 || student.size(0) != teacher.size(0))
    throw UsageError("{}: features of shapes {} and {}; expected [samples, …] with equally many samples", who,
                     c10::str(student.sizes()), c10::str(teacher.sizes()));
  return {widened(student).flatten(1), widened(teacher).flatten(1)};
}

/// All distances of the batch, in units of their mean.
Tensor distances(const Tensor& x) {
  constexpr double kEpsilon = 1e-12;  // under the root, whose slope at 0 is infinite
  const Tensor squares = x.square().sum(1);
  const Tensor all = (squares.unsqueeze(1) + squares.unsqueeze(0) - 2 * x.mm(x.t())).clamp_min(kEpsilon).sqrt();
  return all / (all.mean() + kEpsilon);
}

/// The cosine of the angle at sample i between j and k, for all triples.
Tensor angles(const Tensor& x) {
  const Tensor towards = torch::nn::functional::normalize(x.unsqueeze(0) - x.unsqueeze(1),
                                                          torch::nn::functional::NormalizeFuncOptions().p(2).dim(2));
  return towards.bmm(towards.transpose(1, 2));
}

/// 1 - mean over the rows of their correlation.
Tensor unlikeness(const Tensor& a, const Tensor& b) {
  constexpr double kEpsilon = 1e-8;
  const Tensor x = a - a.mean(1, true), y = b - b.mean(1, true);
  return 1 - ((x * y).sum(1) / (x.norm(2, 1) * y.norm(2, 1) + kEpsilon)).mean();
}

}  // namespace

Tensor distillation_ce_loss(const Tensor& s, const Tensor& t, CrossEntropyOptions options) {
  const Pair logits = checked_logits("distillation_ce_loss", s, t);
  return ce_loss(logits.s, logits.t.softmax(1), options);
}

Tensor dml_loss(const Tensor& s, const Tensor& t, DmlOptions options) {
  const Pair logits = checked_logits("dml_loss", s, t);
  const bool softmax = options.activation == DmlOptions::Activation::softmax;
  const auto log_p = [&](const Tensor& z) { return softmax ? z.log_softmax(1) : torch::log_sigmoid(z); };
  const Tensor log_s = log_p(logits.s), log_t = log_p(logits.t);
  return (kl(log_s, log_t) + kl(log_t, log_s)) / 2;
}

Tensor distance_loss(const Tensor& x, const Tensor& y, DistanceOptions options) {
  const Pair pair = checked("distance_loss", x, y);
  switch (options.mode) {
    case DistanceOptions::Mode::l1:
      return torch::l1_loss(pair.s, pair.t);
    case DistanceOptions::Mode::smooth_l1:
      return torch::smooth_l1_loss(pair.s, pair.t);
    case DistanceOptions::Mode::l2:
      break;
  }
  return torch::mse_loss(pair.s, pair.t);
}

Tensor kl_div_loss(const Tensor& s, const Tensor& t, KlDivOptions options) {
  check_temperature("kl_div_loss", options.temperature);
  const Pair logits = checked_logits("kl_div_loss", s, t);
  const double T = options.temperature;
  return T * T * kl((logits.t / T).log_softmax(1), (logits.s / T).log_softmax(1));
}

Tensor dkd_loss(const Tensor& s, const Tensor& t, const Tensor& labels, DkdOptions options) {
  check_temperature("dkd_loss", options.temperature);
  const Pair logits = checked_logits("dkd_loss", s, t);
  const double T = options.temperature;
  const Tensor zs = logits.s / T, zt = logits.t / T;
  const Tensor mask = torch::one_hot(hard_labels("dkd_loss", logits, labels), s.size(1)).to(zs.scalar_type());
  const Tensor of_label = kl(log_binary(zt.log_softmax(1), mask), log_binary(zs.log_softmax(1), mask));
  const Tensor of_others = kl((zt - kOut * mask).log_softmax(1), (zs - kOut * mask).log_softmax(1));
  return T * T * (options.alpha * of_label + options.beta * of_others);
}

Tensor wsl_loss(const Tensor& s, const Tensor& t, const std::optional<Tensor>& labels, WslOptions options) {
  check_temperature("wsl_loss", options.temperature);
  const Pair logits = checked_logits("wsl_loss", s, t);
  const double T = options.temperature;
  const Tensor target = hard_labels("wsl_loss", logits, labels);
  const auto entropy = [&](const Tensor& z) {
    return at::cross_entropy_loss(z.detach(), target, {}, at::Reduction::None);
  };
  const Tensor ratio = (entropy(logits.s) / (entropy(logits.t) + 1e-7)).clamp_min(0);
  return T * T * (soft_entropy(logits, T) * (1 - (-ratio).exp())).mean();
}

Tensor skd_loss(const Tensor& s, const Tensor& t, const std::optional<Tensor>& labels, SkdOptions options) {
  check_temperature("skd_loss", options.temperature);
  const Pair logits = checked_logits("skd_loss", s, t);
  const double T = options.temperature;
  const Tensor target = hard_labels("skd_loss", logits, labels);
  const Pair spheres{normalised(logits.s) * options.multiplier, normalised(logits.t) * options.multiplier};
  return options.alpha * T * T * soft_entropy(spheres, T).mean() + (1 - options.alpha) * ce_loss(spheres.s, target);
}

Tensor rkd_distance_loss(const Tensor& student, const Tensor& teacher) {
  const Pair features = checked_features("rkd_distance_loss", student, teacher);
  return torch::smooth_l1_loss(distances(features.s), distances(features.t));
}

Tensor rkd_angle_loss(const Tensor& student, const Tensor& teacher) {
  const Pair features = checked_features("rkd_angle_loss", student, teacher);
  return torch::smooth_l1_loss(angles(features.s), angles(features.t));
}

Tensor dist_loss(const Tensor& s, const Tensor& t, DistOptions options) {
  const Pair logits = checked_logits("dist_loss", s, t);
  const Tensor ps = logits.s.softmax(1), pt = logits.t.softmax(1);
  return options.beta * unlikeness(ps, pt) + options.gamma * unlikeness(ps.t(), pt.t());
}

}  // namespace trireme::nn
