#include "trireme/train/trainer/make_model.h"

#include <torch/torch.h>

#include "trireme/config/check.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/module_state.h"
#include "trireme/models/models.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;
using config::Arch;
using config::Node;

constexpr const char* kSuffix = ".safetensors";
constexpr const char* kOfCheckpoint = "model.safetensors";
constexpr size_t kShownNames = 8;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

const std::vector<std::string> kArguments = {"dropout_prob", "dropout", "in_channels", "input_image_channel",
                                             "small_input"};

void warn_unknown(const std::string& model, const std::string& key, const Node& node) {
  const auto nearest = closest(key, kArguments);
  log_warning("{}", node.remark(fmt::format("{} has no such argument; ignored{}", model,
                                            nearest ? fmt::format("; did you mean '{}'?", *nearest) : "")));
}

models::ModelOptions options_of(const Arch& arch) {
  models::ModelOptions options{.class_num = arch.class_num};
  for (const auto& [key, node] : arch.arguments) {
    if (node.is_null()) continue;
    if (key == "dropout_prob" || key == "dropout")
      options.dropout = node.as<double>();
    else if (key == "in_channels" || key == "input_image_channel")
      options.in_channels = node.as<int64_t>();
    else if (key == "small_input")
      options.small_input = node.as<bool>();
    else
      warn_unknown(arch.name, key, node);
  }
  return options;
}

models::ClassifierPtr create(const Arch& arch) {
  config::check_choice(arch.node.at("name"), arch.name, models::names());
  try {
    return models::create(arch.name, options_of(arch));
  } catch (const UsageError& error) {
    arch.node.fail("{}", error.what());
  }
}

/// Where `pretrained: True` finds its weights.
std::string known_weights(const Arch& arch) {
  const Node node = arch.node.at("pretrained");
  const auto folder = env::get_nonempty("TRIREME_WEIGHTS");
  if (!folder)
    node.fail(
        "True: $TRIREME_WEIGHTS is not set, so there is nowhere to look for {}{}; set it, name a file by -o {}=PATH, "
        "or begin with random weights by -o {}=False",
        arch.name, kSuffix, node.path(), node.path());
  const fs::path ssld = fs::path(*folder) / (arch.name + "_ssld" + kSuffix);
  if (arch.use_ssld && is_file(ssld)) return ssld;
  const fs::path file = fs::path(*folder) / (arch.name + kSuffix);
  if (!is_file(file))
    node.fail(
        "True: there is no {} ($TRIREME_WEIGHTS); put it there, name another by -o {}=PATH, or begin with random "
        "weights by -o {}=False",
        file.string(), node.path(), node.path());
  return file;
}

models::ClassifierPtr make_model(const Arch& arch, bool with_weights) {
  models::ClassifierPtr model = create(arch);
  if (!arch.pretrained.wanted || !with_weights) return model;
  const std::string path = arch.pretrained.path.empty() ? known_weights(arch) : arch.pretrained.path;
  const std::string key = arch.node.at("pretrained").path();
  load_weights(*model, path, {.what = key.empty() ? "pretrained" : key});
  return model;
}

RoleModels make_distillation(const Arch& arch, const NetworkNeeds& needs) {
  const std::string main = arch.infer_model_name.empty() ? arch.models.back().role : arch.infer_model_name;
  std::vector<RoleModels::Part> parts;
  for (const config::DistilledModel& model : arch.models) {
    if (needs.only_main && model.role != main) continue;
    const bool frozen = model.frozen && !needs.only_main;
    const bool elsewhere = needs.own_weights && (!frozen || needs.only_main);
    parts.push_back({model.role, make_model(model.arch, !elsewhere), frozen});
  }
  return {std::move(parts), main};
}

/// Those of a checkpoint by its manifest, so that damage is seen.
io::TensorMap read_weights(const fs::path& file) {
  const fs::path folder = file.parent_path();
  if (file.filename() != kOfCheckpoint || !is_file(folder / "manifest.json")) return io::load_safetensors(file);
  const fs::path parent = folder.parent_path();
  return io::CheckpointFolder(parent.empty() ? "." : parent).read(folder.filename().string()).tensors.at("model");
}

std::string advice_for(const WeightsUse& use) {
  return fmt::format(
      "Is it another model's, or one with other classes? Name the right file by -o {}=PATH, or change {}", use.what,
      use.new_classes ? "Arch.name" : "Arch.name or Arch.class_num");
}

}  // namespace

RoleModels make_network(const Arch& arch, const NetworkNeeds& needs) {
  if (arch.is_distillation()) return make_distillation(arch, needs);
  return {{{"", make_model(arch, !needs.own_weights)}}, ""};
}

fs::path weights_file(const std::string& path, const std::string& what) {
  for (const fs::path& file : {fs::path(path), fs::path(path + kSuffix), fs::path(path) / kOfCheckpoint})
    if (is_file(file)) return file;
  throw UsageError(
      "{}={}: there is no such file, no {}{} and no checkpoint {}/model.safetensors; weights of PyTorch and Paddle "
      "become safetensors by tools/pth_to_safetensors.py and tools/pdparams_to_safetensors.py",
      what, path, path, kSuffix, path);
}

void load_weights(torch::nn::Module& module, const std::string& path, const WeightsUse& use) {
  const fs::path file = weights_file(path, use.what);
  const io::LoadReport report = io::load_into(
      module, read_weights(file), {.skip_mismatch = use.new_classes, .from = file.string(), .advice = advice_for(use)});
  log_info("weights from {}", file.string());
  if (!report.skipped.empty())
    log_warning("{}: {} of another shape keep their random start: {}", file.string(), report.skipped.size(),
                join_some(report.skipped, kShownNames));
}

}  // namespace trireme::trainer
