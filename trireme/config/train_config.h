// A training configuration as PaddleClas writes them, typed and checked.
//
// What is wrong is a UsageError with file, line and key; an unknown key is a warning with the nearest one, and so is a
// known one that asks for something Trireme does not do.
//
//   const auto config = config::load("ResNet50.yaml", {"Global.device=cpu", "Global.epochs=2"});
//   config.optimizer.lr.learning_rate;   // 0.1
//
// Operators, losses and models keep parameters of their own as nodes. Once they have been made, warn_unknown() reports
// the keys that were never read.
// Thread rule: as for Node, one thread at a time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/arch_config.h"
#include "trireme/config/data_config.h"
#include "trireme/config/global_config.h"
#include "trireme/config/loss_config.h"
#include "trireme/config/node.h"
#include "trireme/config/optimizer_config.h"

namespace trireme::config {

struct PostProcess {
  std::string name = "Topk";
  int64_t topk = 1;
  std::string class_id_map_file;  ///< `id name` a line; empty: no names
  Node node;
};

struct Infer {
  std::vector<NamedNode> transforms;
  PostProcess post_process;
};

struct TrainConfig {
  Global global;
  Amp amp;
  Ema ema;
  Arch arch;
  TrainAndEval<Loss> loss;
  TrainAndEval<Metric> metric;
  Optimizer optimizer;  ///< as by default in a file without DataLoader.Train
  std::optional<DataLoader> train;
  std::optional<DataLoader> eval;
  std::optional<DataLoader> unlabel_train;
  std::optional<Infer> infer;
  Node document;

  /// UsageError when there is no DataLoader.Train (or Eval) "to train on"; the message names a similar key.
  void require_loader(const char* key, const char* purpose) const;

  /// The file with what it builds upon and all overrides, as YAML that parse() reads.
  std::string to_text() const;
  /// Warns once of each key that was not read so far.
  void warn_unknown() const;
};

TrainConfig load(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});
/// From a text, as a checkpoint keeps it; `source` names it in messages.
TrainConfig parse(const std::string& text, const std::string& source, const std::vector<std::string>& overrides = {});

}  // namespace trireme::config
