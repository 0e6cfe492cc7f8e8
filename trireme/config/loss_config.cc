#include "trireme/config/loss_config.h"

#include "trireme/config/check.h"

namespace trireme::config {
namespace {

std::string read_role(const Node& node, const Arch& arch) {
  auto role = node.as<std::string>();
  if (!arch.is_distillation()) node.fail("names a model of a {}, but Arch.name is '{}'", kDistillationModel, arch.name);
  std::vector<std::string> roles;
  for (const DistilledModel& model : arch.models) roles.push_back(model.role);
  check_choice(node, role, roles);
  return role;
}

Loss read_loss(const NamedNode& named, const Arch& arch) {
  const Node& params = named.params;
  Loss loss{.name = named.name, .weight = 1, .model_name_pairs = {}, .model_names = {}, .params = params};
  if (params.is_null()) return loss;
  loss.weight = real(params, "weight", 1);
  for (const Node& pair : params.at("model_name_pairs").items()) {
    const auto names = pair.items();
    if (names.size() != 2) pair.fail("expected the names of two models, got {}", names.size());
    loss.model_name_pairs.emplace_back(read_role(names[0], arch), read_role(names[1], arch));
  }
  for (const Node& name : params.at("model_names").items()) loss.model_names.push_back(read_role(name, arch));
  params.hand_on();
  return loss;
}

Metric read_metric(const NamedNode& named, const Arch& arch) {
  const Node& params = named.params;
  Metric metric;
  metric.name = named.name;
  metric.params = params;
  if (params.is_null()) return metric;
  metric.topk = params.find_list_or_one<int64_t>("topk").value_or(metric.topk);
  for (const int64_t k : metric.topk)
    if (k < 1) params.at("topk").fail("{} is too small; expected at least 1", k);
  if (params.has("model_key")) metric.model_key = read_role(params.at("model_key"), arch);
  if (metric.name != "TopkAcc" && metric.name != "DistillationTopkAcc") params.hand_on();
  return metric;
}

template <typename T, typename Read>
TrainAndEval<T> read_both(const Node& section, const Arch& arch, const Read& read) {
  TrainAndEval<T> both;
  for (const NamedNode& named : read_named_list(section.at("Train"))) both.train.push_back(read(named, arch));
  for (const NamedNode& named : read_named_list(section.at("Eval"))) both.eval.push_back(read(named, arch));
  return both;
}

}  // namespace

TrainAndEval<Loss> read_losses(const Node& section, const Arch& arch) {
  return read_both<Loss>(section, arch, read_loss);
}

TrainAndEval<Metric> read_metrics(const Node& section, const Arch& arch) {
  return read_both<Metric>(section, arch, read_metric);
}

}  // namespace trireme::config
