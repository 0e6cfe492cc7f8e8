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

/// A loss of nn: of two tensors and its options.
template <typename Options>
using LossFunction = Tensor (*)(const Tensor&, const Tensor&, Options);

/// The sum of what `value` gives for each.
template <typename Range, typename Function>
Tensor sum_of(const Range& range, Function value) {
  Tensor sum;
  for (const auto& item : range) sum = sum.defined() ? sum + value(item) : value(item);
  return sum;
}

// --- of one model

/// A function of scores and labels, for the main model or the ones a distillation names.
template <typename Options>
Value of_models(const Loss& loss, LossFunction<Options> function, const Options& options) {
  config::warn_ignored(loss.params, "model_name_pairs",
                       fmt::format("{} is taken of each model by itself; name them in model_names", loss.name));
  return [=, roles = loss.model_names](const Outputs& outputs, const Tensor& target) {
    if (roles.empty()) return function(outputs.main(), target, options);
    return sum_of(roles, [&](const std::string& role) { return function(outputs.of(role), target, options); });
  };
}

Value cross_entropy(const Loss& loss) {
  return of_models(loss, nn::ce_loss, smoothing(loss.params));
}

Value multi_label(const Loss& loss) {
  return of_models(loss, nn::multi_label_loss,
                   nn::MultiLabelOptions{.epsilon = smoothing(loss.params).epsilon,
                                         .sum_classes = loss.params.get("size_sum", false),
                                         .weight_ratio = loss.params.get("weight_ratio", false)});
}

Value binary(const Loss& loss) {
  nn::BinaryOptions options{.epsilon = smoothing(loss.params).epsilon};
  options.target_threshold = config::real(loss.params, "target_threshold", options.target_threshold);
  return of_models(loss, nn::bce_loss, options);
}

// --- of a student and a teacher

template <typename Function>
Value of_pairs(const Loss& loss, Function function) {
  if (loss.model_name_pairs.empty())
    loss.params.fail("{} compares two models; name them: model_name_pairs: [[\"Student\", \"Teacher\"]]", loss.name);
  config::warn_ignored(loss.params, "model_names",
                       fmt::format("{} compares two models; model_name_pairs names them", loss.name));
  return [function, pairs = loss.model_name_pairs](const Outputs& outputs, const Tensor& target) {
    return sum_of(pairs,
                  [&](const auto& pair) { return function(outputs.of(pair.first), outputs.of(pair.second), target); });
  };
}

/// The same of a function that does not look at labels.
template <typename Options>
Value of_pairs(const Loss& loss, LossFunction<Options> function, const Options& options) {
  return of_pairs(loss, [=](const Tensor& s, const Tensor& t, const Tensor&) { return function(s, t, options); });
}

Value soft_cross_entropy(const Loss& loss) {
  return of_pairs(loss, nn::distillation_ce_loss, smoothing(loss.params));
}

Value dml(const Loss& loss) {
  nn::DmlOptions options;
  if (config::choice(loss.params, "act", "softmax", {"softmax", "sigmoid"}) == "sigmoid")
    options.activation = nn::DmlOptions::Activation::sigmoid;
  return of_pairs(loss, nn::dml_loss, options);
}

Value distance(const Loss& loss) {
  using Mode = nn::DistanceOptions::Mode;
  const std::map<std::string, Mode> modes = {{"l1", Mode::l1}, {"l2", Mode::l2}, {"smooth_l1", Mode::smooth_l1}};
  const nn::DistanceOptions options{.mode =
                                        modes.at(config::choice(loss.params, "mode", "l2", {"l1", "l2", "smooth_l1"}))};
  return of_pairs(loss, nn::distance_loss, options);
}

Value kl_div(const Loss& loss) {
  const nn::KlDivOptions options{.temperature = temperature(loss.params, nn::KlDivOptions{}.temperature)};
  return of_pairs(loss, nn::kl_div_loss, options);
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
  return of_pairs(loss, nn::dist_loss, options);
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
  if (const auto key = loss.params.get<std::string>("key", "logits"); key != "logits")
    loss.params.at("key").fail("'{}' is not supported: a loss compares what models give out, their logits", key);
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
