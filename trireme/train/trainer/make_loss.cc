#include "trireme/train/trainer/make_loss.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "trireme/config/check.h"
#include "trireme/core/error.h"
#include "trireme/nn/distillation_losses.h"
#include "trireme/nn/losses.h"

namespace trireme::trainer {
namespace {

using config::Loss;
using config::Node;
using torch::Tensor;
using Value = std::function<Tensor(const Outputs&, const Tensor& target)>;

nn::CrossEntropyOptions smoothing(const Node& params) {
  return {.epsilon = config::real(params, "epsilon", 0, {.least = 0, .most = 0.999999})};
}

double temperature(const Node& params, double otherwise) {
  return config::real(params, "temperature", otherwise, {.least = 1e-6});
}

// --- of one model

/// A function of scores and labels, for the main model or the ones a distillation names.
template <typename Function>
Value of_models(const Loss& loss, Function function) {
  if (loss.model_names.empty())
    return [function](const Outputs& outputs, const Tensor& target) { return function(outputs.main(), target); };
  return [function, roles = loss.model_names](const Outputs& outputs, const Tensor& target) {
    Tensor sum;
    for (const std::string& role : roles) {
      const Tensor one = function(outputs.of(role), target);
      sum = sum.defined() ? sum + one : one;
    }
    return sum;
  };
}

Value cross_entropy(const Loss& loss) {
  return of_models(loss, [options = smoothing(loss.params)](const Tensor& scores, const Tensor& target) {
    return nn::ce_loss(scores, target, options);
  });
}

Value multi_label(const Loss& loss) {
  const nn::MultiLabelOptions options{.epsilon = smoothing(loss.params).epsilon,
                                      .sum_classes = loss.params.get("size_sum", false),
                                      .weight_ratio = loss.params.get("weight_ratio", false)};
  return of_models(loss, [options](const Tensor& scores, const Tensor& target) {
    return nn::multi_label_loss(scores, target, options);
  });
}

Value binary(const Loss& loss) {
  nn::BinaryOptions options{.epsilon = smoothing(loss.params).epsilon};
  options.target_threshold = config::real(loss.params, "target_threshold", options.target_threshold);
  return of_models(
      loss, [options](const Tensor& scores, const Tensor& target) { return nn::bce_loss(scores, target, options); });
}

// --- of a student and a teacher

template <typename Function>
Value of_pairs(const Loss& loss, Function function) {
  if (loss.model_name_pairs.empty())
    loss.params.fail("{} compares two models; name them: model_name_pairs: [[\"Student\", \"Teacher\"]]", loss.name);
  return [function, pairs = loss.model_name_pairs](const Outputs& outputs, const Tensor& target) {
    Tensor sum;
    for (const auto& [student, teacher] : pairs) {
      const Tensor one = function(outputs.of(student), outputs.of(teacher), target);
      sum = sum.defined() ? sum + one : one;
    }
    return sum;
  };
}

Value soft_cross_entropy(const Loss& loss) {
  return of_pairs(loss, [options = smoothing(loss.params)](const Tensor& s, const Tensor& t, const Tensor&) {
    return nn::distillation_ce_loss(s, t, options);
  });
}

Value dml(const Loss& loss) {
  nn::DmlOptions options;
  if (config::choice(loss.params, "act", "softmax", {"softmax", "sigmoid"}) == "sigmoid")
    options.activation = nn::DmlOptions::Activation::sigmoid;
  return of_pairs(loss,
                  [options](const Tensor& s, const Tensor& t, const Tensor&) { return nn::dml_loss(s, t, options); });
}

Value distance(const Loss& loss) {
  using Mode = nn::DistanceOptions::Mode;
  const std::map<std::string, Mode> modes = {{"l1", Mode::l1}, {"l2", Mode::l2}, {"smooth_l1", Mode::smooth_l1}};
  const nn::DistanceOptions options{.mode =
                                        modes.at(config::choice(loss.params, "mode", "l2", {"l1", "l2", "smooth_l1"}))};
  return of_pairs(
      loss, [options](const Tensor& s, const Tensor& t, const Tensor&) { return nn::distance_loss(s, t, options); });
}

Value kl_div(const Loss& loss) {
  const nn::KlDivOptions options{.temperature = temperature(loss.params, nn::KlDivOptions{}.temperature)};
  return of_pairs(
      loss, [options](const Tensor& s, const Tensor& t, const Tensor&) { return nn::kl_div_loss(s, t, options); });
}

bool teacher_labels(const Loss& loss) {
  return loss.params.get("use_target_as_gt", false);
}

Value dkd(const Loss& loss) {
  const nn::DkdOptions options{.temperature = temperature(loss.params, nn::DkdOptions{}.temperature),
                               .alpha = config::real(loss.params, "alpha", 1),
                               .beta = config::real(loss.params, "beta", 1)};
  return of_pairs(loss, [options, own = !teacher_labels(loss)](const Tensor& s, const Tensor& t, const Tensor& target) {
    return nn::dkd_loss(s, t, own ? target : t.argmax(1), options);
  });
}

Value wsl(const Loss& loss) {
  const nn::WslOptions options{.temperature = temperature(loss.params, nn::WslOptions{}.temperature)};
  return of_pairs(loss, [options, own = !teacher_labels(loss)](const Tensor& s, const Tensor& t, const Tensor& target) {
    return nn::wsl_loss(s, t, own ? std::optional(target) : std::nullopt, options);
  });
}

Value skd(const Loss& loss) {
  const nn::SkdOptions options{.temperature = temperature(loss.params, nn::SkdOptions{}.temperature),
                               .multiplier = config::real(loss.params, "multiplier", nn::SkdOptions{}.multiplier),
                               .alpha = config::real(loss.params, "alpha", nn::SkdOptions{}.alpha)};
  return of_pairs(loss, [options, own = !teacher_labels(loss)](const Tensor& s, const Tensor& t, const Tensor& target) {
    return nn::skd_loss(s, t, own ? std::optional(target) : std::nullopt, options);
  });
}

Value rkd(const Loss& loss) {
  const double distances = config::real(loss.params, "distance_ratio", 25);
  const double angles = config::real(loss.params, "angle_ratio", 50);
  return of_pairs(loss, [distances, angles](const Tensor& s, const Tensor& t, const Tensor&) {
    return distances * nn::rkd_distance_loss(s, t) + angles * nn::rkd_angle_loss(s, t);
  });
}

Value dist(const Loss& loss) {
  const nn::DistOptions options{.beta = config::real(loss.params, "beta", 1),
                                .gamma = config::real(loss.params, "gamma", 1)};
  return of_pairs(loss,
                  [options](const Tensor& s, const Tensor& t, const Tensor&) { return nn::dist_loss(s, t, options); });
}

enum class Wants { nothing, labels, labels_unless_taught };

struct Kind {
  Value (*make)(const Loss&);
  Wants wants;
};

const std::map<std::string, Kind> kKinds = {
    {"CELoss", {cross_entropy, Wants::labels}},
    {"MixCELoss", {cross_entropy, Wants::labels}},
    {"MultiLabelLoss", {multi_label, Wants::labels}},
    {"BCELoss", {binary, Wants::labels}},
    {"DistillationGTCELoss", {cross_entropy, Wants::labels}},
    {"DistillationMultiLabelLoss", {multi_label, Wants::labels}},
    {"DistillationCELoss", {soft_cross_entropy, Wants::nothing}},
    {"DistillationDMLLoss", {dml, Wants::nothing}},
    {"DistillationDistanceLoss", {distance, Wants::nothing}},
    {"DistillationKLDivLoss", {kl_div, Wants::nothing}},
    {"DistillationDKDLoss", {dkd, Wants::labels_unless_taught}},
    {"DistillationWSLLoss", {wsl, Wants::labels_unless_taught}},
    {"DistillationSKDLoss", {skd, Wants::labels_unless_taught}},
    {"DistillationRKDLoss", {rkd, Wants::nothing}},
    {"DistillationDISTLoss", {dist, Wants::nothing}},
};

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kKinds) names.push_back(name);
  return names;
}

Losses::One make_one(const Loss& loss, const Node& section) {
  config::check_choice(loss.params.path().empty() ? section : loss.params, loss.name, kind_names());
  const Kind& kind = kKinds.at(loss.name);
  loss.params.get<std::string>("key", "");  // our models have one output each
  const bool wants =
      kind.wants == Wants::labels || (kind.wants == Wants::labels_unless_taught && !teacher_labels(loss));
  return {.name = loss.name, .weight = loss.weight, .needs_labels = wants, .value = kind.make(loss)};
}

}  // namespace

Losses make_losses(const std::vector<Loss>& losses, const Node& section) {
  std::vector<Losses::One> made;
  for (const Loss& loss : losses) made.push_back(make_one(loss, section));
  return Losses(std::move(made));
}

Losses::Values Losses::operator()(const Outputs& outputs, const Labels& labels) const {
  Values values;
  const bool partly = labels.labelled < outputs.main().size(0);
  for (const One& one : losses_) {
    const Tensor value = one.needs_labels && partly ? one.value(outputs.first(labels.labelled), labels.target)
                                                    : one.value(outputs, labels.target);
    values.each.push_back(one.weight == 1 ? value : value * one.weight);
    values.total = values.total.defined() ? values.total + values.each.back() : values.each.back();
  }
  return values;
}

std::vector<std::string> Losses::names() const {
  std::vector<std::string> names;
  for (const One& one : losses_) {
    const auto before = std::count_if(losses_.data(), &one, [&](const One& other) { return other.name == one.name; });
    names.push_back(before == 0 ? one.name : fmt::format("{}_{}", one.name, before));
  }
  return names;
}

std::vector<std::string> Losses::names_with_total() const {
  std::vector<std::string> all = names();
  all.emplace_back("loss");
  return all;
}

std::vector<Tensor> Losses::Values::with_total() const {
  if (!total.defined()) return {};
  std::vector<Tensor> all = each;
  all.push_back(total);
  return all;
}

bool Losses::need_labels() const {
  return std::any_of(losses_.begin(), losses_.end(), [](const One& one) { return one.needs_labels; });
}

}  // namespace trireme::trainer
