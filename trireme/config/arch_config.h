// The section Arch: a model of the zoo, or a DistillationModel of several.
//
//   Arch: {name: PPLCNet_x1_0, class_num: 102, dropout_prob: 0.0}
//   config.arch.arguments.at("dropout_prob").as<double>();
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

inline constexpr int64_t kImageNetClasses = 1000;

/// `pretrained: True | False | PATH`. True means the weights of that name wherever weights are kept.
struct Pretrained {
  bool wanted = false;
  std::string path;  ///< empty: by the model's name
  bool operator==(const Pretrained&) const = default;
};

struct DistilledModel;

struct Arch {
  std::string name;
  int64_t class_num = kImageNetClasses;
  Pretrained pretrained;  ///< unset in a DistillationModel, like use_ssld: its models have their own
  bool use_ssld = false;
  bool use_sync_bn = false;
  bool infer_add_softmax = true;  ///< when it is exported
  /// All other keys: keyword arguments of the model, whose maker reports those it does not know.
  std::map<std::string, Node> arguments;

  // Of a DistillationModel only.
  std::vector<DistilledModel> models;
  std::string infer_model_name;  ///< of the model that is evaluated and exported; empty: the last

  Node node;

  bool is_distillation() const { return !models.empty(); }
  /// The model that is evaluated and exported: this one, or of a distillation mostly the student.
  const Arch& main() const;
};

struct DistilledModel {
  std::string role;  ///< "Teacher", "Student"
  Arch arch;         ///< its `pretrained` includes what pretrained_list says
  bool frozen = false;
};

inline constexpr const char* kDistillationModel = "DistillationModel";

/// `class_num` is taken where the section has none (the deprecated Global.class_num, or an enclosing Arch).
Arch read_arch(const Node& section, int64_t class_num = kImageNetClasses);

}  // namespace trireme::config
