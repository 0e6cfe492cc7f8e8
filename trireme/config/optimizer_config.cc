#include "trireme/config/optimizer_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/config/check.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

constexpr RealRange kShare{.least = 0, .most = 1};

const KeyOwners kOptimizerKeys = {{"momentum", {"Momentum", "RMSProp"}},
                                  {"use_nesterov", {"Momentum"}},
                                  {"beta1", {"Adam", "AdamW", "Lamb"}},
                                  {"beta2", {"Adam", "AdamW", "Lamb"}},
                                  {"epsilon", {"Adam", "AdamW", "Lamb", "RMSProp"}},
                                  {"rho", {"RMSProp"}}};

const KeyOwners kScheduleKeys = {
    {"eta_min", {"Cosine"}},        {"decay_epochs", {"Piecewise"}},       {"values", {"Piecewise"}},
    {"step_size", {"Step"}},        {"gamma", {"Step", "MultiStepDecay"}}, {"milestones", {"MultiStepDecay"}},
    {"end_lr", {"Linear", "Poly"}}, {"power", {"Linear", "Poly"}}};

std::vector<int64_t> ascending_epochs(const Node& section, std::string_view key) {
  const Node node = section.at(key);
  auto epochs = node.is_null() ? std::vector<int64_t>{} : node.as<std::vector<int64_t>>();
  if (!std::is_sorted(epochs.begin(), epochs.end()) || (!epochs.empty() && epochs.front() < 0))
    node.fail("expected ascending epochs from 0 on, got {}", fmt::join(epochs, ", "));
  return epochs;
}

std::string read_schedule(const Node& section) {
  const std::string name = choice(section, "name", "Constant",
                                  {"Constant", "ConstLR", "Linear", "Poly", "Polynomial", "Cosine", "Step", "Piecewise",
                                   "MultiStepDecay", "MultiStep"});
  if (name == "ConstLR") return "Constant";
  if (name == "Polynomial") return "Poly";
  return name == "MultiStep" ? "MultiStepDecay" : name;
}

/// As in PaddleClas, a learning_rate (other than 0) replaces both lists by a rule that needs neither.
void read_piecewise(const Node& section, LearningRate& lr) {
  lr.learning_rate = real(section, "learning_rate", 0);
  lr.values = section.get("values", lr.values);
  for (const double value : lr.values)
    if (value < 0) section.at("values").fail("{} is too small; expected at least 0", value);
  lr.decay_epochs = ascending_epochs(section, "decay_epochs");
  if (lr.learning_rate != 0) {
    lr.values.clear();
    lr.decay_epochs.clear();
    return;
  }
  if (lr.values.empty()) section.need<double>("learning_rate");
  if (lr.values.size() != lr.decay_epochs.size() + 1)
    section.at("values").fail("{} values for {} decay_epochs; expected one value more than epochs ({})",
                              lr.values.size(), lr.decay_epochs.size(), lr.decay_epochs.size() + 1);
  lr.learning_rate = lr.values[0];
}

void read_rate(const Node& section, LearningRate& lr) {
  if (lr.name == "Piecewise") return read_piecewise(section, lr);
  section.need<double>("learning_rate");
  lr.learning_rate = real(section, "learning_rate", 0);
}

LearningRate read_learning_rate(const Node& section) {
  LearningRate lr;
  lr.name = read_schedule(section);
  read_rate(section, lr);
  lr.warmup_epoch = real(section, "warmup_epoch", 0);
  lr.warmup_start_lr = real(section, "warmup_start_lr", 0);
  lr.eta_min = real(section, "eta_min", 0);
  lr.step_size = real(section, "step_size", lr.step_size);
  lr.gamma = real(section, "gamma", lr.gamma);
  lr.milestones = ascending_epochs(section, "milestones");
  lr.end_lr = real(section, "end_lr", 0);
  lr.power = real(section, "power", lr.power);
  lr.by_epoch = section.get("by_epoch", false);
  if (whole(section, "last_epoch", -1, {.least = -1}) != -1)
    warn_ignored(section, "last_epoch", "the schedule begins with the training; --resume continues both");
  lr.auto_scale = section.get("auto_scale", false);
  lr.node = section;
  warn_of_keys_of_others(section, kScheduleKeys, lr.name);
  return lr;
}

Regularizer read_regularizer(const Node& section) {
  if (section.is_null()) return {};
  const std::string name = choice(section, "name", "L2", {"L1", "L2"});
  return {.kind = name == "L1" ? RegularizerKind::l1 : RegularizerKind::l2, .coeff = real(section, "coeff", 0)};
}

/// Names separated by spaces, or a list of them.
std::vector<std::string> read_names(const Node& node) {
  if (node.is_null()) return {};
  if (node.is_list()) return node.as<std::vector<std::string>>();
  auto names = split(node.as<std::string>(), ' ');
  std::erase(names, "");
  return names;
}

void read_decay(const Node& section, Optimizer& optimizer) {
  optimizer.weight_decay = real(section, "weight_decay", 0);
  optimizer.regularizer = read_regularizer(section.section("regularizer"));
  optimizer.no_weight_decay_name = read_names(section.at("no_weight_decay_name"));
  optimizer.one_dim_param_no_weight_decay = section.get("one_dim_param_no_weight_decay", false);
  if (optimizer.regularizer.kind == RegularizerKind::none || !section.has("weight_decay")) return;
  log_warning("{}", section.at("weight_decay").remark("ignored, because there is a regularizer; keep one of the two"));
  optimizer.weight_decay = 0;
}

}  // namespace

Optimizer read_optimizer(const Node& section) {
  Optimizer optimizer;
  optimizer.name = choice(section, "name", optimizer.name, {"SGD", "Momentum", "Adam", "AdamW", "RMSProp", "Lamb"});
  optimizer.momentum = real(section, "momentum", optimizer.name == "RMSProp" ? 0 : optimizer.momentum, kShare);
  optimizer.use_nesterov = section.get("use_nesterov", false);
  optimizer.beta1 = real(section, "beta1", optimizer.beta1, kShare);
  optimizer.beta2 = real(section, "beta2", optimizer.beta2, kShare);
  const bool coarse = optimizer.name == "RMSProp" || optimizer.name == "Lamb";
  optimizer.epsilon = real(section, "epsilon", coarse ? 1e-6 : optimizer.epsilon);
  optimizer.rho = real(section, "rho", optimizer.rho, kShare);
  if (section.has("clip_norm")) optimizer.clip_norm = real(section, "clip_norm", 0, {.least = 1e-30});
  warn_unless(true, section, "multi_precision", "weights of low precision (AMP.level O2) always have float32 masters");
  warn_of_keys_of_others(section, kOptimizerKeys, optimizer.name);
  read_decay(section, optimizer);
  optimizer.lr = read_learning_rate(section.need_section("lr"));
  optimizer.node = section;
  return optimizer;
}

}  // namespace trireme::config
