#include "trireme/deploy/export/lower.h"

#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/deploy/export/lowering.h"

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;

/// Numbers, lists and devices are read by the nodes that use them.
bool computes_nothing(const jit::Node& node) {
  const c10::Symbol kind = node.kind();
  return kind == c10::prim::Constant || kind == c10::prim::ListConstruct || kind == c10::prim::ListUnpack ||
         kind == c10::prim::device;
}

OnnxType onnx_type(at::ScalarType type) {
  if (type == torch::kBool) return OnnxType::boolean;
  return at::isFloatingType(type) ? OnnxType::float32 : OnnxType::int64;
}

at::ScalarType torch_type(OnnxType type) {
  if (type == OnnxType::boolean) return torch::kBool;
  return type == OnnxType::int64 ? torch::kLong : torch::kFloat;
}

std::vector<OnnxSize> port_shape(const Traced& traced, const jit::Value* value) {
  std::vector<OnnxSize> sizes;
  for (const int64_t size : shape_of(value)) sizes.emplace_back(size);
  for (const size_t dim : traced.open_dims(value)) sizes[dim] = traced.is_batch(value, dim) ? "batch" : "";
  return sizes;
}

OnnxPort images_port(const Traced& traced, const std::string& name) {
  OnnxPort port{name, port_shape(traced, traced.images())};
  if (traced.any_size) port.shape[2] = "height", port.shape[3] = "width";
  return port;
}

std::vector<std::span<const RuleEntry>> families() {
  return {math_rules(), layer_rules(), shape_rules(), part_rules(), reduce_rules(), product_rules(), recurrent_rules()};
}

std::string output_name(const LowerOptions& options, size_t i) {
  return i == 0 ? options.output : fmt::format("{}_{}", options.output, i);
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
      refuse("has no rule; use operators that docs/export.md lists, or leave out ONNX (.onnx = false)");
    try {
      rule(*this);
    } catch (const c10::Error& error) {  // an argument that this overload does not have
      refuse(fmt::format("is called in a form that is not known ({}); leave out ONNX (.onnx = false)",
                         error.what_without_backtrace()));
    }
  }
  name_outputs();
}

/// An output that is an input or a weight, or is listed twice, needs a node to have its name.
void Lowering::name_outputs() {
  for (size_t i = 0; i < traced_.outputs().size(); ++i) {
    const std::string name = value(traced_.outputs()[i]), wanted = output_name(options_, i);
    if (name != wanted) out_.model.add(OnnxNode{"Identity", {name}, {wanted}});
  }
}

void Lowering::refuse(const std::string& why) const {
  throw UsageError("{} cannot become ONNX: operator {}, whose output is of {}, {}", options_.model,
                   node_->kind().toQualString(), fmt::join(shape_of(node_->output(0)), " x "), why);
}

void Lowering::require_fixed(const jit::Value* of, size_t dim, const std::string& why) const {
  if (!is_open(of, dim)) return;
  if (traced_.any_size && !traced_.is_batch(of, dim))
    throw FixedSizeNeeded("operator {} {}", node_->kind().toQualString(), why);
  refuse(fmt::format("{}, but dimension {} follows the number of images", why, dim));
}

bool Lowering::is_open(const jit::Value* of, size_t dim) const {
  const std::vector<size_t> open = open_dims(of);
  return std::find(open.begin(), open.end(), dim) != open.end();
}

OnnxType Lowering::type_of(const jit::Value* of) const {
  if (const auto tensor = of->type()->cast<c10::TensorType>())
    return onnx_type(tensor->scalarType().value_or(torch::kFloat));
  const auto constant = jit::toIValue(of);
  if (constant && constant->isDouble()) return OnnxType::float32;
  return constant && constant->isBool() ? OnnxType::boolean : OnnxType::int64;
}

std::vector<size_t> Lowering::dims(const char* name) const {
  std::vector<size_t> all;
  for (const int64_t dim : ints(name)) all.push_back(from_front(dim, rank_of_input()));
  return all;
}

std::string Lowering::text(const char* name) const {
  if (const auto constant = jit::toIValue(argument(name)); constant && constant->isString())
    return constant->toStringRef();
  refuse(fmt::format("has a {} that is computed", name));
}

Ints Lowering::ints(const char* name) const {
  const jit::Value* list = argument(name);
  Ints all = whole_numbers(list);
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

std::vector<double> Lowering::numbers(const char* name) const {
  if (const auto constant = jit::toIValue(argument(name)); constant && constant->isDoubleList())
    return constant->toDoubleVector();
  std::vector<double> all;
  for (const jit::Value* item : argument(name)->node()->inputs()) {
    const auto number = jit::toIValue(item);
    if (!number || !number->isScalar()) refuse(fmt::format("has {} that are computed", name));
    all.push_back(number->toScalar().toDouble());
  }
  return all;
}

bool Lowering::flag(const char* name) const {
  if (const auto constant = jit::constant_as<bool>(argument(name))) return *constant;
  refuse(fmt::format("has a {} that is computed", name));
}

std::string Lowering::value(const jit::Value* of) {
  return value_as(of, type_of(of));
}

std::string Lowering::value_as(const jit::Value* of, OnnxType type) {
  if (const auto known = jit::toIValue(of); known && known->isScalar())
    return constant(known->toScalar().toDouble(), type);
  if (const auto known = jit::toIValue(of); known && known->isTensor())
    return constant(known->toTensor().to(torch_type(type)));
  const auto [found, is_new] = names_.try_emplace(of);
  if (is_new) {
    const Weight* weight = traced_.weight_of(of);
    if (weight == nullptr) refuse(fmt::format("takes %{}, which is not a tensor", of->debugName()));
    add_weight(found->second = weight->name, weight->value.to(torch_type(type_of(of))));
  }
  const std::string name = found->second;
  return type == type_of(of) ? name : emit("Cast", {name}, {{"to", static_cast<int64_t>(type)}});
}

Names Lowering::values(const char* name) {
  const jit::Node* list = argument(name)->node();
  if (list->kind() != c10::prim::ListConstruct) refuse(fmt::format("has {} that are computed as a list", name));
  Names all;
  for (const jit::Value* item : list->inputs()) all.push_back(value(item));
  return all;
}

std::string Lowering::whole(const jit::Value* of) {
  if (const auto number = jit::constant_as<int64_t>(of)) return constant(Ints{*number});
  return value(of);
}

std::string Lowering::wholes(const jit::Value* list) {
  const jit::Node* items = list->node();
  const Ints numbers = whole_numbers(list);
  if (!numbers.empty() || items->kind() != c10::prim::ListConstruct || items->inputs().empty())
    return constant(numbers);
  Names parts;
  for (const jit::Value* item : items->inputs()) parts.push_back(whole(item));
  return emit("Concat", parts, {{"axis", int64_t{0}}});
}

std::string Lowering::shape_for_reshape(const jit::Value* of) {
  const std::vector<size_t> open = open_dims(of);
  if (open.size() > 1) return shape(of);
  Ints sizes = shape_of(of);
  if (!open.empty()) sizes[open.front()] = -1;
  return constant(sizes);
}

std::string Lowering::shape(const jit::Value* of) {
  return open_dims(of).empty() ? constant(shape_of(of)) : emit("Shape", {value(of)});
}

std::string Lowering::constant(double number, OnnxType type) {
  return constant(torch::tensor(number, torch::kDouble).to(torch_type(type)));
}

std::string Lowering::constant(const torch::Tensor& tensor) {
  const std::string name = fresh("constant_");
  add_weight(name, tensor);
  return name;
}

void Lowering::add_weight(const std::string& name, const torch::Tensor& tensor) {
  const torch::Tensor& kept = out_.kept.emplace_back(tensor.detach().to(torch::kCPU).contiguous());
  out_.model.add(OnnxWeight{.name = name,
                            .type = onnx_type(kept.scalar_type()),
                            .shape = kept.sizes().vec(),
                            .bytes = {static_cast<const char*>(kept.const_data_ptr()), kept.nbytes()}});
}

std::string Lowering::emit(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes) {
  return emit_many(op, std::move(inputs), std::move(attributes), 1)[0];
}

Names Lowering::emit_many(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes, size_t outputs) {
  Names names;
  for (size_t i = 0; i < outputs; ++i) names.push_back(fresh("value_"));
  out_.model.add(OnnxNode{op, std::move(inputs), names, std::move(attributes)});
  return names;
}

void Lowering::result(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes, size_t of) {
  results(op, std::move(inputs), std::move(attributes), {output(of)});
}

void Lowering::results(const std::string& op, Names inputs, std::vector<OnnxAttribute> attributes,
                       const Values& outputs) {
  Names names;
  for (const jit::Value* value : outputs) names.push_back(names_[value] = name_for(value));
  out_.model.add(OnnxNode{op, std::move(inputs), names, std::move(attributes)});
}

std::string Lowering::name_for(const jit::Value* output) {
  const auto outputs = traced_.outputs();
  const auto found = std::find(outputs.begin(), outputs.end(), output);
  return found == outputs.end() ? fresh("value_") : output_name(options_, static_cast<size_t>(found - outputs.begin()));
}

Rule rule_for(const std::string& op) {
  for (const auto family : families())
    for (const RuleEntry& entry : family)
      if (op == entry.op) return entry.rule;
  return nullptr;
}

std::vector<std::string> lowered_operators() {
  std::vector<std::string> all;
  for (const auto family : families())
    for (const RuleEntry& entry : family) all.emplace_back(entry.op);
  std::sort(all.begin(), all.end());
  return all;
}

Lowered lower(const Traced& traced, const LowerOptions& options) {
  std::vector<OnnxPort> outputs;
  for (size_t i = 0; i < traced.outputs().size(); ++i) {
    const jit::Value* value = traced.outputs()[i];
    const auto type = value->type()->expect<c10::TensorType>()->scalarType().value_or(torch::kFloat);
    outputs.push_back({output_name(options, i), port_shape(traced, value), onnx_type(type)});
  }
  Lowered lowered{OnnxModel(options.model, images_port(traced, options.input), std::move(outputs))};
  Lowering(traced, options, lowered).run();
  return lowered;
}

}  // namespace trireme::deploy
