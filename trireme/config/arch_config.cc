#include "trireme/config/arch_config.h"

#include <algorithm>

#include "trireme/config/check.h"
#include "trireme/core/log.h"

namespace trireme::config {
namespace {

Pretrained read_pretrained(const Node& node) {
  if (node.is_null()) return {};
  if (node.is_bool()) return {.wanted = node.as<bool>(), .path = ""};
  if (!node.is_scalar()) node.fail("expected True, False or a path, got {}", node.shown());
  return {.wanted = true, .path = node.as<std::string>()};
}

/// A list with one entry for each model, or null: no entry.
std::vector<Node> per_model(const Node& section, std::string_view key, size_t models) {
  const Node node = section.at(key);
  auto list = node.items();
  if (!node.is_null() && list.size() != models)
    node.fail("{} entries for {} models; expected one for each", list.size(), models);
  return list;
}

void check_infer_model(const Node& section, const Arch& arch) {
  if (arch.infer_model_name.empty()) return;
  std::vector<std::string> roles;
  for (const DistilledModel& model : arch.models) roles.push_back(model.role);
  check_choice(section.at("infer_model_name"), arch.infer_model_name, roles);
}

/// A file writes class_num once and gives it to the models by an alias (*class_num). A change by -o is for all
/// of them, except those that have an option of their own.
void share_class_num(const Node& section, const std::vector<NamedNode>& models) {
  const Node classes = section.at("class_num");
  if (classes.is_null() || !classes.is_option()) return;
  for (const NamedNode& model : models) {
    if (!model.params.is_map() || !model.params.has("class_num")) continue;
    const Node own = model.params.at("class_num");
    if (own.is_option() || own.shown() == classes.shown()) continue;
    log_info("{}: also for {}, which had {}", classes.where(), own.path(), own.shown());
    model.params.value()->set("class_num", classes.value());
  }
}

void read_models(const Node& section, Arch& arch) {
  const auto nodes = read_named_list(section.at("models"));
  if (nodes.empty()) section.at("models").fail("missing; a {} has a list of models", kDistillationModel);
  share_class_num(section, nodes);
  const auto frozen = per_model(section, "freeze_params_list", nodes.size());
  const auto pretrained = per_model(section, "pretrained_list", nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    DistilledModel model{.role = nodes[i].name, .arch = read_arch(nodes[i].params, arch.class_num), .frozen = false};
    if (!frozen.empty()) model.frozen = frozen[i].as<bool>();
    if (!pretrained.empty() && !pretrained[i].is_null()) model.arch.pretrained = read_pretrained(pretrained[i]);
    warn_unless(arch.infer_add_softmax, nodes[i].params, "infer_add_softmax",
                fmt::format("the export reads {} only", section.at("infer_add_softmax").path()));
    arch.models.push_back(std::move(model));
  }
  arch.infer_model_name = section.get<std::string>("infer_model_name", "");
  if (section.get<std::string>("infer_output_key", "logits") != "logits")
    warn_ignored(section, "infer_output_key", "a model has one output, its logits");
  check_infer_model(section, arch);
}

/// Weights belong to the models. A file may inherit `pretrained: False` from its base; by -o it is a request.
void ignore_own_weights(const Node& section, Arch& arch) {
  const bool any = std::any_of(arch.models.begin(), arch.models.end(),
                               [](const DistilledModel& model) { return model.arch.pretrained.wanted; });
  if (arch.pretrained.wanted || (any && section.at("pretrained").is_option()))
    warn_ignored(section, "pretrained", "each of the models has its own, in pretrained_list or in models");
  warn_unless(false, section, "use_ssld", "each of the models has its own");
  arch.pretrained = {};
  arch.use_ssld = false;
}

/// Not for a DistillationModel: its other keys stay unread, and unread.h reports them.
void read_arguments(const Node& section, Arch& arch) {
  const auto known = section.value()->asked;
  for (const auto& [key, node] : section.entries())
    if (!known.contains(key)) arch.arguments.emplace(key, node);
}

}  // namespace

const Arch& Arch::main() const {
  if (!is_distillation()) return *this;
  for (const DistilledModel& model : models)
    if (model.role == infer_model_name) return model.arch;
  return models.back().arch;
}

Arch read_arch(const Node& section, int64_t class_num) {
  Arch arch;
  arch.name = section.need<std::string>("name");
  arch.class_num = whole(section, "class_num", class_num, {.least = 1});
  arch.pretrained = read_pretrained(section.at("pretrained"));
  arch.use_ssld = section.get("use_ssld", false);
  arch.use_sync_bn = section.get("use_sync_bn", false);
  arch.infer_add_softmax = section.get("infer_add_softmax", true);
  if (arch.name == kDistillationModel) {
    read_models(section, arch);
    ignore_own_weights(section, arch);
  } else {
    read_arguments(section, arch);
  }
  arch.node = section;
  return arch;
}

}  // namespace trireme::config
