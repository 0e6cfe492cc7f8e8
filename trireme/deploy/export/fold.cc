#include "trireme/deploy/export/fold.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

// aten::_convolution(input, weight, bias, stride, padding, dilation, transposed, …)
constexpr size_t kWeight = 1, kBias = 2;

Symbol convolution() {
  static const Symbol kind = Symbol::fromQualString("aten::_convolution");
  return kind;
}

bool is_true(const jit::Node* node, const char* argument, bool otherwise) {
  return jit::constant_as<bool>(node->namedInput(argument)).value_or(otherwise);
}

/// A weight, or left out. wide_or() would take a computed value for one that is left out.
bool known_or_none(const Traced& traced, const jit::Value* value) {
  return traced.weight_of(value) != nullptr || value->mustBeNone();
}

/// A convolution whose weights are known and whose output has one reader.
bool can_change(const Traced& traced, const jit::Node* node) {
  if (node->kind() != convolution() || node->output()->uses().size() != 1) return false;
  return known_or_none(traced, node->input(kBias)) && traced.weight_of(node->input(kWeight)) != nullptr &&
         !is_true(node, "transposed", true);
}

torch::Tensor wide(const Weight* weight) {
  return weight->value.to(torch::kDouble);
}

torch::Tensor wide_or(const Traced& traced, const jit::Value* value, double otherwise, int64_t size) {
  const Weight* weight = traced.weight_of(value);
  return weight != nullptr ? wide(weight) : torch::full({size}, otherwise, torch::kDouble);
}

/// "conv1.weight" -> "conv1.bias"
std::string bias_name(std::string name) {
  constexpr std::string_view kEnd = "weight";
  if (name.ends_with(kEnd)) name.resize(name.size() - kEnd.size());
  return name + "bias";
}

void set_weights(Traced& traced, jit::Node* conv, const torch::Tensor& weight, const torch::Tensor& bias) {
  const std::string name = traced.weight_of(conv->input(kWeight))->name;
  conv->replaceInput(kWeight, traced.add_weight(name, weight.to(traced.type)));
  conv->replaceInput(kBias, traced.add_weight(bias_name(name), bias.to(traced.type)));
}

bool can_fold(const Traced& traced, const jit::Node* norm) {
  return can_change(traced, norm->namedInput("input")->node()) && !is_true(norm, "training", true) &&
         known_or_none(traced, norm->namedInput("weight")) && known_or_none(traced, norm->namedInput("bias")) &&
         traced.weight_of(norm->namedInput("running_mean")) != nullptr &&
         traced.weight_of(norm->namedInput("running_var")) != nullptr && jit::toIValue(norm->namedInput("eps"));
}

void fold(Traced& traced, jit::Node* norm) {
  jit::Node* conv = norm->namedInput("input")->node();
  const torch::Tensor variance = wide(traced.weight_of(norm->namedInput("running_var")));
  const int64_t size = variance.numel();
  const double epsilon = jit::toIValue(norm->namedInput("eps"))->toDouble();
  const torch::Tensor scale = wide_or(traced, norm->namedInput("weight"), 1, size) / (variance + epsilon).sqrt();
  const torch::Tensor mean = wide(traced.weight_of(norm->namedInput("running_mean")));
  const torch::Tensor bias = (wide_or(traced, conv->input(kBias), 0, size) - mean) * scale +
                             wide_or(traced, norm->namedInput("bias"), 0, size);
  const torch::Tensor weight = wide(traced.weight_of(conv->input(kWeight)));
  std::vector<int64_t> column(static_cast<size_t>(weight.dim()), 1);
  column[0] = size;
  set_weights(traced, conv, weight * scale.reshape(column), bias);
  norm->output()->replaceAllUsesWith(conv->output());
  norm->destroy();
}

// --- branches

/// An argument of a convolution, for each dimension of its kernel.
std::vector<int64_t> numbers_of(const Traced& traced, const jit::Node* conv, const char* argument) {
  const int64_t dimensions = traced.weight_of(conv->input(kWeight))->value.dim() - 2;
  return for_dimensions(whole_numbers(conv->namedInput(argument)), static_cast<size_t>(dimensions));
}

bool same_numbers(const Traced& traced, const jit::Node* one, const jit::Node* other, const char* argument) {
  return numbers_of(traced, one, argument) == numbers_of(traced, other, argument);
}

/// By how much the smaller kernel lies inside the larger, last dimension first and twice, as padding is written.
std::optional<std::vector<int64_t>> margins(const Traced& traced, const jit::Node* large, const jit::Node* small) {
  const auto outer = traced.weight_of(large->input(kWeight))->value.sizes();
  const auto inner = traced.weight_of(small->input(kWeight))->value.sizes();
  const std::vector<int64_t> outer_padding = numbers_of(traced, large, "padding");
  const std::vector<int64_t> inner_padding = numbers_of(traced, small, "padding");
  if (outer.size() != inner.size() || outer.slice(0, 2) != inner.slice(0, 2)) return std::nullopt;
  std::vector<int64_t> all;
  for (size_t i = outer.size(); i-- > 2;) {
    const int64_t margin = outer_padding.at(i - 2) - inner_padding.at(i - 2);
    if (margin < 0 || outer[i] - inner[i] != 2 * margin) return std::nullopt;
    all.insert(all.end(), 2, margin);
  }
  return all;
}

bool without_dilation(const jit::Node* conv) {
  const std::vector<int64_t> dilation = whole_numbers(conv->namedInput("dilation"));
  return std::all_of(dilation.begin(), dilation.end(), [](int64_t step) { return step == 1; });
}

bool are_branches(const Traced& traced, const jit::Node* one, const jit::Node* other) {
  return one != other && can_change(traced, one) && can_change(traced, other) && one->input(0) == other->input(0) &&
         without_dilation(one) && without_dilation(other) && same_numbers(traced, one, other, "stride") &&
         same_numbers(traced, one, other, "groups");
}

/// False: the kernel of `small` does not lie inside that of `large`.
bool merge_into(Traced& traced, jit::Node* large, const jit::Node* small) {
  const auto margin = margins(traced, large, small);
  if (!margin) return false;
  const torch::Tensor weight = wide(traced.weight_of(large->input(kWeight)));
  const torch::Tensor inner = torch::constant_pad_nd(wide(traced.weight_of(small->input(kWeight))), *margin);
  const int64_t size = weight.size(0);
  const torch::Tensor bias =
      wide_or(traced, large->input(kBias), 0, size) + wide_or(traced, small->input(kBias), 0, size);
  set_weights(traced, large, weight + inner, bias);
  return true;
}

void merge(Traced& traced, jit::Node* sum) {
  jit::Node* one = sum->input(0)->node();
  jit::Node* other = sum->input(1)->node();
  const auto alpha = jit::toIValue(sum->namedInput("alpha"));
  if (!are_branches(traced, one, other) || !alpha || alpha->toScalar().toDouble() != 1) return;
  if (!merge_into(traced, one, other)) {
    std::swap(one, other);
    if (!merge_into(traced, one, other)) return;
  }
  sum->output()->replaceAllUsesWith(one->output());
  sum->destroy();
}

}  // namespace

void fold_batch_norms(Traced& traced) {
  const torch::NoGradGuard no_grad;
  for (jit::Node* norm : traced.nodes_of(c10::aten::batch_norm))
    if (can_fold(traced, norm)) fold(traced, norm);
  traced.remove_unused();
}

void merge_branches(Traced& traced) {
  const torch::NoGradGuard no_grad;
  for (jit::Node* sum : traced.nodes_of(c10::aten::add))
    if (sum->hasNamedInput("alpha")) merge(traced, sum);  // others add sizes
  traced.remove_unused();
}

}  // namespace trireme::deploy
