#include "trireme/train/trainer/make_model.h"

#include <torch/torch.h>

#include <map>

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

/// Sets an option from an argument in the section Arch.
using Argument = void (*)(models::ModelOptions& options, const Node& node);

constexpr Argument kDropout = [](auto& options, const Node& node) { options.dropout = node.as<double>(); };
constexpr Argument kChannels = [](auto& options, const Node& node) { options.in_channels = node.as<int64_t>(); };

const std::map<std::string, Argument> kArguments = {
    {"dropout", kDropout},
    {"dropout_prob", kDropout},
    {"in_channels", kChannels},
    {"input_image_channel", kChannels},
    {"small_input", [](auto& options, const Node& node) { options.small_input = node.as<bool>(); }},
    {"stride_list", [](auto& options, const Node& node) { options.stride_list = node.as<std::vector<int64_t>>(); }},
    {"lr_mult_list", [](auto& options, const Node& node) { options.lr_mult_list = node.as<std::vector<double>>(); }},
    {"use_first_short_conv", [](auto& options, const Node& node) { options.first_short_conv = node.as<bool>(); }},
    // Another layer makes another network; another format gives the same numbers, since images lie channels last.
    {"layer_type", [](auto&, const Node& node) { check_choice(node, node.as<std::string>(), {"ConvBNLayer"}); }},
    {"data_format",
     [](auto&, const Node& node) {
       check_choice(node, node.as<std::string>(), {"NCHW", "NHWC"});
     }},
};

void warn_unknown(const std::string& model, const std::string& key, const Node& node) {
  std::vector<std::string> known;
  for (const auto& [name, set] : kArguments) known.push_back(name);
  const auto nearest = closest(key, known);
  log_warning("{}", node.remark(fmt::format("{} has no such argument; ignored{}", model,
                                            nearest ? fmt::format("; did you mean '{}'?", *nearest) : "")));
}

models::ModelOptions options_of(const Arch& arch) {
  models::ModelOptions options{.class_num = arch.class_num};
  for (const auto& [key, node] : arch.arguments) {
    const auto found = kArguments.find(key);
    if (node.is_null()) continue;
    if (found != kArguments.end())
      found->second(options, node);
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
  const fs::path file = fs::path(*folder) / (arch.name + kSuffix);
  if (arch.use_ssld && is_file(ssld)) return ssld;
  if (arch.use_ssld)
    config::warn_ignored(arch.node, "use_ssld",
                         fmt::format("there is no {}; {} is used", ssld.string(), file.filename().string()));
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

struct Weights {
  io::TensorMap tensors;
  std::string kind = {};  ///< which of the two, when there is an average of them
};

/// Those of a checkpoint by its manifest, so that damage is seen.
Weights read_weights(const fs::path& file) {
  const fs::path folder = file.parent_path();
  if (!is_file(folder / "manifest.json")) return {io::load_safetensors(file)};
  const fs::path parent = folder.parent_path();
  const io::Snapshot snapshot = io::CheckpointFolder(parent.empty() ? "." : parent).read(folder.filename().string());
  const auto found = snapshot.tensors.find(file.stem().string());
  if (found == snapshot.tensors.end()) return {io::load_safetensors(file)};
  const auto kind = snapshot.manifest.state.find("extra.weights");  // as Saver writes it
  if (file.stem() == "ema" || kind == snapshot.manifest.state.end()) return {found->second};
  return {found->second, fmt::format(" ({} weights)", kind->second)};
}

/// The names of torchvision's and PaddleClas' ResNets differ in case: resnet50, ResNet50.
std::string other_author(const torch::nn::Module& module, const io::TensorMap& tensors) {
  for (const std::string& name : models::names()) {
    if (name == module.name() || to_lower(name) != to_lower(module.name())) continue;
    const bool vision = name.starts_with("resnet");
    if (tensors.contains(vision ? "layer1.0.conv1.weight" : "blocks.0.conv0.conv.weight"))
      return fmt::format("The file has {} names: they are those of Arch.name {}. ",
                         vision ? "torchvision's" : "PaddleClas'", name);
  }
  return "";
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
      "become safetensors by pth_to_safetensors and pdparams_to_safetensors (in tools/ of the sources, in bin/ when "
      "installed)",
      what, path, path, kSuffix, path);
}

void load_weights(torch::nn::Module& module, const std::string& path, const WeightsUse& use) {
  const fs::path file = weights_file(path, use.what);
  const Weights weights = read_weights(file);
  const io::LoadReport report = io::load_into(module, weights.tensors,
                                              {.skip_mismatch = use.new_classes,
                                               .from = file.string(),
                                               .advice = other_author(module, weights.tensors) + advice_for(use)});
  log_info("weights from {}{}", file.string(), weights.kind);
  if (!report.skipped.empty())
    log_warning("{}: {} of another shape keep their random start: {}", file.string(), report.skipped.size(),
                join_some(report.skipped, kShownNames));
}

}  // namespace trireme::trainer
