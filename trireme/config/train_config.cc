#include "trireme/config/train_config.h"

#include <algorithm>
#include <cmath>

#include "trireme/config/check.h"
#include "trireme/config/document.h"
#include "trireme/config/unread.h"
#include "trireme/config/write.h"
#include "trireme/core/log.h"

namespace trireme::config {
namespace {

PostProcess read_post_process(const Node& section) {
  PostProcess post;
  post.name = section.get("name", post.name);
  post.topk = whole(section, "topk", post.topk, {.least = 1});
  post.class_id_map_file = section.get("class_id_map_file", post.class_id_map_file);
  if (post.name != "Topk") {
    warn_ignored(section, "name", "an exported model answers with its topk best classes (Topk)");
    section.hand_on();
  }
  post.node = section;
  return post;
}

/// PaddleClas' files have such keys for its infer.py; by -o they are meant for the program that is started.
void warn_if_option(const Node& section, const char* key) {
  if (section.at(key).is_option()) warn_ignored(section, key, "pictures are answered by `trireme infer --image`");
}

Infer read_infer(const Node& section) {
  Infer infer;
  for (const char* key : {"infer_imgs", "batch_size"}) warn_if_option(section, key);
  infer.transforms = read_named_list(section.at("transforms"));
  infer.post_process = read_post_process(section.section("PostProcess"));
  return infer;
}

std::optional<DataLoader> find_loader(const Node& loaders, std::string_view key) {
  const Node section = loaders.section(key);
  return section.is_null() ? std::nullopt : std::optional(read_data_loader(section));
}

void read_loaders(const Node& root, TrainConfig& config) {
  const Node loaders = root.section("DataLoader");
  config.train = find_loader(loaders, "Train");
  config.eval = find_loader(loaders, "Eval");
  config.unlabel_train = find_loader(loaders, "UnLabelTrain");
}

/// PaddleClas' older place for the number of classes.
int64_t default_classes(const Node& global) {
  const int64_t classes = whole(global, "class_num", kImageNetClasses, {.least = 1});
  if (global.has("class_num")) log_info("{}", global.at("class_num").remark("write it as Arch.class_num"));
  return classes;
}

void ignore_section(const Node& root, std::string_view key, std::string_view why) {
  const Node node = root.at(key);
  if (!node.is_null()) log_warning("{}", node.remark(why));
}

/// A short trial run (-o Global.epochs=2) keeps the file's warm-up; it then ends with the last epoch.
void limit_warmup(TrainConfig& config) {
  LearningRate& lr = config.optimizer.lr;
  const auto epochs = static_cast<double>(config.global.epochs);
  if (lr.warmup_epoch <= epochs) return;
  const Node node = lr.node.at("warmup_epoch");
  log_warning("{}", node.remark(fmt::format("{} epochs of warm-up, but Global.epochs is {}; {} are used",
                                            lr.warmup_epoch, epochs, epochs)));
  lr.warmup_epoch = epochs;
}

/// Whether decay_epochs and values of a Piecewise say what its learning_rate means: a tenth every 30 epochs.
bool lists_agree(const LearningRate& lr, int64_t epochs) {
  const auto values = lr.node.get<std::vector<double>>("values", {});
  const auto decays = lr.node.get<std::vector<int64_t>>("decay_epochs", {});
  if (values.size() != decays.size() + 1) return false;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto passed = std::upper_bound(decays.begin(), decays.end(), epoch) - decays.begin();
    const int64_t falls = epoch / 30;
    const double rule = lr.learning_rate * std::pow(0.1, static_cast<double>(falls));
    if (std::abs(values[static_cast<size_t>(passed)] - rule) > 1e-6 * rule) return false;
  }
  return true;
}

void warn_of_unused_lists(const LearningRate& lr, int64_t epochs) {
  if (lr.name != "Piecewise" || !lr.values.empty() || !lr.node.has("values") || lists_agree(lr, epochs)) return;
  warn_ignored(lr.node, "values",
               fmt::format("learning_rate is given, and so, as in PaddleClas, the rate begins with {:g} and falls to a "
                           "tenth every 30 epochs; -o {}=null uses decay_epochs and values",
                           lr.learning_rate, lr.node.at("learning_rate").path()));
}

void read_training(const Node& root, TrainConfig& config) {
  if (config.train) {
    config.optimizer = read_optimizer(root.need_section("Optimizer"));
    limit_warmup(config);
    warn_of_unused_lists(config.optimizer.lr, config.global.epochs);
    if (config.loss.train.empty())
      root.section("Loss").at("Train").fail("missing; training needs a list of losses{}{}", root.slip_of("Loss"),
                                            root.section("Loss").slip_of("Train"));
  } else if (const Node section = root.section("Optimizer"); !section.is_null()) {
    config.optimizer = read_optimizer(section);
  }
}

TrainConfig read_train_config(const Node& root) {
  TrainConfig config;
  const Node global = root.need_section("Global");
  config.global = read_global(global);
  config.amp = read_amp(root.section("AMP"));
  config.ema = read_ema(root.section("EMA"));
  config.arch = read_arch(root.need_section("Arch"), default_classes(global));
  config.loss = read_losses(root.section("Loss"), config.arch);
  config.metric = read_metrics(root.section("Metric"), config.arch);
  read_loaders(root, config);
  read_training(root, config);
  if (const Node infer = root.section("Infer"); !infer.is_null()) config.infer = read_infer(infer);
  ignore_section(root, "Slim", "pruning and quantisation are not part of Trireme; the section is ignored");
  config.document = root;
  return config;
}

}  // namespace

void TrainConfig::require_loader(const char* key, const char* purpose) const {
  const Node loaders = document.section("DataLoader");
  if (!loaders.has(key))
    document.fail("there is no DataLoader.{} to {}{}{}", key, purpose, document.slip_of("DataLoader"),
                  loaders.slip_of(key));
}

std::string TrainConfig::to_text() const {
  return write_yaml(*document.value());
}

void TrainConfig::warn_unknown() const {
  warn_unread(document);
}

TrainConfig load(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  TrainConfig config = read_train_config(load_document(path, overrides));
  config.warn_unknown();
  return config;
}

TrainConfig parse(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  TrainConfig config = read_train_config(parse_document(text, source, overrides));
  config.warn_unknown();
  return config;
}

}  // namespace trireme::config
