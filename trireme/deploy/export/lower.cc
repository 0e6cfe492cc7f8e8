#include "trireme/deploy/export/lower.h"

#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;

/// Numbers and lists are read by the nodes that use them.
bool computes_nothing(const jit::Node& node) {
  return node.kind() == c10::prim::Constant || node.kind() == c10::prim::ListConstruct;
}

std::vector<int64_t> sample_shape(const jit::Value* value) {
  const std::vector<int64_t> shape = shape_of(value);
  return {shape.begin() + 1, shape.end()};
}

}  // namespace

Lowering::Lowering(const Traced& traced, const LowerOptions& options, Lowered& out)
    : traced_(traced), options_(options), out_(out) {
  names_[traced.images()] = options.input;
}

void Lowering::run() {
  for (const jit::Node* node : traced_.graph->nodes()) {
    if (computes_nothing(*node)) continue;
    node_ = node;
    const Rule rule = node->kind().is_aten() ? rule_for(node->kind().toUnqualString()) : nullptr;
    if (rule == nullptr)
      refuse(fmt::format("is not supported; supported are {}. Use those, or leave out ONNX",
                         join(lowered_operators(), ", ")));
    rule(*this);
  }
}

void Lowering::refuse(const std::string& why) const {
  const std::vector<int64_t> shape = shape_of(node_->output(0));
  throw UsageError("{} cannot become ONNX: operator {}, whose output is of {}, {}", options_.model,
                   node_->kind().toQualString(), fmt::join(shape, " x "), why);
}

std::vector<int64_t> Lowering::ints(const char* name) const {
  const jit::Value* list = argument(name);
  std::vector<int64_t> all = whole_numbers(list);
  const auto constant = jit::toIValue(list);
  const bool empty = constant && constant->isIntList();
  if (all.empty() && !empty && !(list->node()->kind() == c10::prim::ListConstruct && list->node()->inputs().empty()))
    refuse(fmt::format("has a {} that is computed", name));
  return all;
}

int64_t Lowering::integer(const char* name) const {
  if (const auto constant = jit::constant_as<int64_t>(argument(name))) return *constant;
  refuse(fmt::format("has a {} that is computed", name));
}

double Lowering::number(const char* name) const {
  if (const auto constant = jit::toIValue(argument(name)); constant && constant->isScalar())
    return constant->toScalar().toDouble();
  refuse(fmt::format("has a {} that is computed", name));
}

bool Lowering::flag(const char* name) const {
  if (const auto constant = jit::constant_as<bool>(argument(name))) return *constant;
  refuse(fmt::format("has a {} that is computed", name));
}

std::string Lowering::value(const jit::Value* of) {
  const auto [found, is_new] = names_.try_emplace(of);
  if (!is_new) return found->second;
  std::string& name = found->second;
  if (const Weight* weight = traced_.weight_of(of)) {
    add_weight(name = weight->name, weight->value);
  } else if (const auto known = jit::toIValue(of); known && known->isTensor()) {
    const torch::Tensor tensor = known->toTensor();
    name = constant(tensor.is_floating_point() || tensor.dim() == 0 ? tensor.to(torch::kFloat) : tensor);
  } else if (known && known->isScalar()) {
    name = constant(known->toScalar().toDouble());
  } else {
    refuse(fmt::format("takes %{}, which is not a tensor", of->debugName()));
  }
  return name;
}

std::string Lowering::constant(const torch::Tensor& tensor) {
  const std::string name = fresh("constant_");
  add_weight(name, tensor);
  return name;
}

void Lowering::add_weight(const std::string& name, const torch::Tensor& tensor) {
  const torch::Tensor& kept = out_.kept.emplace_back(tensor.detach().to(torch::kCPU).contiguous());
  if (kept.scalar_type() != torch::kFloat && kept.scalar_type() != torch::kLong)
    refuse(fmt::format("has a weight {} of type {}", name, c10::toString(kept.scalar_type())));
  out_.model.add(OnnxWeight{.name = name,
                            .type = kept.scalar_type() == torch::kLong ? OnnxType::int64 : OnnxType::float32,
                            .shape = kept.sizes().vec(),
                            .bytes = {static_cast<const char*>(kept.const_data_ptr()), kept.nbytes()}});
}

std::string Lowering::emit(const std::string& op, std::vector<std::string> inputs,
                           std::vector<OnnxAttribute> attributes) {
  std::string output = fresh("value_");
  out_.model.add(OnnxNode{op, std::move(inputs), {output}, std::move(attributes)});
  return output;
}

void Lowering::result(const std::string& op, std::vector<std::string> inputs, std::vector<OnnxAttribute> attributes) {
  const jit::Value* value = node_->output();
  const std::string name = value == traced_.scores() ? options_.output : fresh("value_");
  names_[value] = name;
  out_.model.add(OnnxNode{op, std::move(inputs), {name}, std::move(attributes)});
}

Lowered lower(const Traced& traced, const LowerOptions& options) {
  Lowered lowered{OnnxModel(options.model, {options.input, sample_shape(traced.images())},
                            {options.output, sample_shape(traced.scores())})};
  Lowering(traced, options, lowered).run();
  return lowered;
}

}  // namespace trireme::deploy
