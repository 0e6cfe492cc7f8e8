// What the rules for single operators (lower_*.cc, one file a family) see of the work: the node at hand, its arguments,
// and where the ONNX nodes go. Internal to the module.
//
// A whole number that is computed from sizes is a tensor of one element in ONNX; a list of them is a vector.
#pragma once

#include <fmt/core.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/deploy/export/lower.h"

namespace trireme::deploy {

using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;
using Values = std::vector<const torch::jit::Value*>;

class Lowering {
 public:
  Lowering(const Traced& traced, const LowerOptions& options, Lowered& out);
  void run();

  // --- the node at hand

  const torch::jit::Node& node() const { return *node_; }
  const torch::jit::Value* output(size_t i = 0) const { return node_->outputs()[i]; }
  const torch::jit::Value* argument(const char* name) const { return node_->namedInput(name); }
  bool has(const char* name) const { return node_->hasNamedInput(name); }
  /// Or there is no such argument.
  bool is_none(const char* name) const { return !has(name) || argument(name)->mustBeNone(); }
  /// Throw UsageError where the argument is not a constant: it depends on the images.
  Ints ints(const char* name) const;
  int64_t integer(const char* name) const;
  double number(const char* name) const;
  std::vector<double> numbers(const char* name) const;
  bool flag(const char* name) const;
  std::string text(const char* name) const;
  /// Of the first argument, counted from the front.
  size_t dim(const char* name) const { return from_front(integer(name), rank_of_input()); }
  std::vector<size_t> dims(const char* name) const;
  static size_t from_front(int64_t dim, size_t rank) {
    return static_cast<size_t>(dim < 0 ? dim + int64_t(rank) : dim);
  }
  size_t rank_of_input() const { return shape_of(node_->input(0)).size(); }

  const Weight* weight(const torch::jit::Value* of) const { return traced_.weight_of(of); }
  std::vector<size_t> open_dims(const torch::jit::Value* of) const { return traced_.open_dims(of); }
  bool is_open(const torch::jit::Value* of, size_t dim) const;
  /// FixedSizeNeeded when the dimension follows the images' size, UsageError when it follows their number.
  void require_fixed(const torch::jit::Value* of, size_t dim, const std::string& why) const;
  OnnxType type_of(const torch::jit::Value* of) const;
  [[noreturn]] void refuse(const std::string& why) const;

  // --- its inputs, by their names in ONNX

  /// A computed value, a weight, or a number, which becomes a weight of one element.
  std::string value(const torch::jit::Value* of);
  std::string value(const char* name) { return value(argument(name)); }
  /// In this type: converted where it has another.
  std::string value_as(const torch::jit::Value* of, OnnxType type);
  std::string value_as(const char* name, OnnxType type) { return value_as(argument(name), type); }
  /// Of a list of tensors.
  Names values(const char* name);
  /// A whole number.
  std::string whole(const torch::jit::Value* of);
  /// A list of whole numbers.
  std::string wholes(const torch::jit::Value* list);
  /// The shape, for Reshape: where one size is open, "what is left".
  std::string shape_for_reshape(const torch::jit::Value* of);
  /// The shape, in numbers where it is known.
  std::string shape(const torch::jit::Value* of);

  // --- what it becomes

  std::string constant(const torch::Tensor& tensor);
  std::string constant(const Ints& numbers) { return constant(torch::tensor(numbers, torch::kLong)); }
  std::string constant(double number) { return constant(torch::tensor(number, torch::kFloat)); }
  std::string constant(double number, OnnxType type);
  /// Nodes on the way; return the names of their outputs.
  std::string emit(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes = {});
  Names emit_many(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes, size_t outputs);
  /// The node whose output is that of the operator, or of one of its outputs.
  void result(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes = {}, size_t of = 0);
  /// A node with these outputs.
  void results(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes, const Values& outputs);
  /// The output is this value.
  void same_as(const torch::jit::Value* output, std::string value) { names_[output] = std::move(value); }

 private:
  void add_weight(const std::string& name, const torch::Tensor& tensor);
  std::string fresh(const char* prefix) { return fmt::format("{}{}", prefix, count_++); }
  std::string name_for(const torch::jit::Value* output);
  void name_outputs();

  const Traced& traced_;
  const LowerOptions& options_;
  Lowered& out_;
  const torch::jit::Node* node_ = nullptr;
  std::map<const torch::jit::Value*, std::string> names_;
  int count_ = 0;
};

using Rule = void (*)(Lowering&);

struct RuleEntry {
  const char* op;
  Rule rule;
};

// A family each, in a file of its name.
std::span<const RuleEntry> math_rules();
std::span<const RuleEntry> layer_rules();
std::span<const RuleEntry> shape_rules();
std::span<const RuleEntry> part_rules();
std::span<const RuleEntry> reduce_rules();
std::span<const RuleEntry> product_rules();
std::span<const RuleEntry> recurrent_rules();

/// nullptr: there is none for this aten operator.
Rule rule_for(const std::string& op);

/// A text as a template's argument.
template <size_t size>
struct Name {
  consteval Name(const char (&from)[size]) { std::copy_n(from, size, text); }  // NOLINT(google-explicit-constructor)
  char text[size] = {};
};

}  // namespace trireme::deploy
