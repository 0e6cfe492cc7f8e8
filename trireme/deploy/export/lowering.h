// What the rules for single operators (lower_ops.cc) see of the work: the node at hand, its arguments, and where the
// ONNX nodes go. Internal to the module.
#pragma once

#include <fmt/core.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "trireme/deploy/export/lower.h"

namespace trireme::deploy {

class Lowering {
 public:
  Lowering(const Traced& traced, const LowerOptions& options, Lowered& out);
  void run();

  // --- the node at hand

  const torch::jit::Node& node() const { return *node_; }
  const torch::jit::Value* argument(const char* name) const { return node_->namedInput(name); }
  bool is_none(const char* name) const { return argument(name)->mustBeNone(); }
  /// Throw UsageError where the argument is not a constant: it depends on the images.
  std::vector<int64_t> ints(const char* name) const;
  int64_t integer(const char* name) const;
  double number(const char* name) const;
  bool flag(const char* name) const;
  /// As Traced::batch_dims_of().
  const std::vector<size_t>* batch_dims(const torch::jit::Value* of) const { return traced_.batch_dims_of(of); }
  /// The name of a computed value, a weight, or a number, which becomes a weight of one element.
  std::string value(const torch::jit::Value* of);
  std::string value(const char* name) { return value(argument(name)); }
  [[noreturn]] void refuse(const std::string& why) const;

  // --- what it becomes

  std::string constant(const torch::Tensor& tensor);
  std::string constant(const std::vector<int64_t>& numbers) { return constant(torch::tensor(numbers, torch::kLong)); }
  std::string constant(double number) { return constant(torch::tensor(number, torch::kFloat)); }
  /// A node on the way; returns the name of its output.
  std::string emit(const std::string& op, std::vector<std::string> inputs, std::vector<OnnxAttribute> attributes = {});
  /// The node whose output is that of the operator.
  void result(const std::string& op, std::vector<std::string> inputs, std::vector<OnnxAttribute> attributes = {});

 private:
  void add_weight(const std::string& name, const torch::Tensor& tensor);
  std::string fresh(const char* prefix) { return fmt::format("{}{}", prefix, count_++); }

  const Traced& traced_;
  const LowerOptions& options_;
  Lowered& out_;
  const torch::jit::Node* node_ = nullptr;
  std::map<const torch::jit::Value*, std::string> names_;
  int count_ = 0;
};

using Rule = void (*)(Lowering&);
/// nullptr: there is none for this aten operator.
Rule rule_for(const std::string& op);

}  // namespace trireme::deploy
