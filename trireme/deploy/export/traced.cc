#include "trireme/deploy/export/traced.h"

#include <fmt/ranges.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

std::string shown(const torch::Tensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.sizes(), " x "));
}

/// Parameters, then buffers, each tensor once: shared weights keep their first name.
std::vector<Weight> weights_of(const torch::nn::Module& module) {
  std::vector<Weight> all;
  std::set<const void*> seen;
  const auto add = [&](const auto& named) {
    for (const auto& item : named)
      if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
        all.push_back({item.key(), item.value()});
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return all;
}

void require_float(const std::vector<Weight>& weights) {
  for (const auto& [name, value] : weights)
    if (value.is_floating_point() && value.scalar_type() != torch::kFloat)
      throw UsageError("{} is of type {}; only networks in float32 are exported: call net->to(torch::kFloat) before",
                       name, c10::toString(value.scalar_type()));
}

torch::Tensor plain(const torch::Tensor& value) {
  return value.detach().to(torch::kCPU).contiguous();
}

/// Images and weights as arguments: what is an argument becomes an input of the graph, whether it wants a gradient or
/// not, where other tensors would become constants in it.
jit::Stack arguments(const torch::Tensor& images, const std::vector<Weight>& weights) {
  jit::Stack stack = {images};
  for (const Weight& weight : weights) stack.emplace_back(weight.value);
  return stack;
}

std::shared_ptr<jit::Graph> record(const Network& net, const jit::Stack& stack) {
  const auto call = [&](jit::Stack inputs) { return jit::Stack{net.forward(inputs[0].toTensor())}; };
  const auto no_names = [](const torch::Tensor&) { return std::string(); };
  return jit::tracer::trace(stack, call, no_names, /*strict=*/true, /*force_outplace=*/true).first->graph;
}

/// The operators that compute, in their order.
std::vector<const jit::Node*> operators_of(const jit::Graph& graph) {
  std::vector<const jit::Node*> all;
  for (const jit::Node* node : graph.nodes())
    if (node->kind().is_aten() && node->outputs().size() == 1) all.push_back(node);
  return all;
}

bool same_operators(const std::vector<const jit::Node*>& one, const std::vector<const jit::Node*>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const jit::Node* a, const jit::Node* b) {
    return a->kind() == b->kind() && shape_of(a->output()).size() == shape_of(b->output()).size();
  });
}

std::vector<size_t> differences(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  std::vector<size_t> all;
  for (size_t i = 0; i < one.size(); ++i)
    if (one[i] != other[i]) all.push_back(i);
  return all;
}

/// A size alone is ambiguous: beside two images there may be two heads or two rows of pixels. The dimensions of the
/// batch are those that differ in a run on another number of images.
void find_batch_dims(Traced& traced, const jit::Graph& other) {
  traced.batch_dims[traced.images()->unique()] = {0};
  const auto ours = operators_of(*traced.graph), theirs = operators_of(other);
  if (!same_operators(ours, theirs)) return;
  for (size_t i = 0; i < ours.size(); ++i)
    traced.batch_dims[ours[i]->output()->unique()] =
        differences(shape_of(ours[i]->output()), shape_of(theirs[i]->output()));
}

/// What does nothing in inference: the output is the first input.
const std::vector<Symbol>& idle_kinds() {
  static const std::vector<Symbol> kinds = [] {
    std::vector<Symbol> all;
    for (const char* name : {"dropout", "feature_dropout", "contiguous", "detach", "alias", "clone"})
      all.push_back(Symbol::fromQualString(std::string("aten::") + name));
    return all;
  }();
  return kinds;
}

void remove_idle(const Traced& traced) {
  for (const Symbol kind : idle_kinds())
    for (jit::Node* node : traced.nodes_of(kind)) {
      const bool active = std::string_view(kind.toUnqualString()).ends_with("dropout") &&
                          jit::constant_as<bool>(node->namedInput("train")).value_or(true);
      if (!active) node->output()->replaceAllUsesWith(node->input(0));
    }
}

bool is_one(const jit::Node* node, const char* argument) {
  const auto number = jit::toIValue(node->namedInput(argument));
  return number && number->isScalar() && number->toScalar().toDouble() == 1;
}

/// torch::nn::Linear of C++ says addmm(bias, x, weight.t()), or matmul(x, weight.t()) where that does not fit. One
/// operator is clearer, and what all readers of these files have fast code for.
void restore_linear(Traced& traced, jit::Node* node, jit::Value* x, jit::Value* turned, jit::Value* bias) {
  if (turned->node()->kind() != c10::aten::t) return;
  const jit::WithInsertPoint here(node);
  if (bias == nullptr) bias = traced.graph->insertConstant(jit::IValue());
  jit::Value* result = traced.graph->insert(c10::aten::linear, {x, turned->node()->input(), bias});
  result->setType(node->output()->type());
  if (const auto* dims = traced.batch_dims_of(node->output())) traced.batch_dims[result->unique()] = *dims;
  node->output()->replaceAllUsesWith(result);
}

void restore_linears(Traced& traced) {
  for (jit::Node* node : traced.nodes_of(c10::aten::addmm))
    if (is_one(node, "alpha") && is_one(node, "beta"))
      restore_linear(traced, node, node->namedInput("mat1"), node->namedInput("mat2"), node->namedInput("self"));
  for (jit::Node* node : traced.nodes_of(c10::aten::matmul))
    restore_linear(traced, node, node->input(0), node->input(1), nullptr);
}

/// x.view({x.size(0), …}) has the number of images of this one run in it; what is meant is "as many as there are".
void free_batch_size(const Traced& traced) {
  for (const char* name : {"aten::view", "aten::reshape"})
    for (jit::Node* node : traced.nodes_of(Symbol::fromQualString(name))) {
      const std::vector<int64_t> sizes = whole_numbers(node->input(1));
      const std::vector<size_t>* dims = traced.batch_dims_of(node->output());
      std::vector<int64_t> shape = shape_of(node->output());
      if (dims == nullptr || dims->size() != 1 || sizes.size() != shape.size()) continue;
      if (sizes[dims->front()] == -1) continue;
      const jit::WithInsertPoint here(node);
      shape[dims->front()] = -1;  // and no other
      node->replaceInput(1, traced.graph->insertConstant(shape));
    }
}

std::shared_ptr<jit::Graph> record_one_more(const Network& net, const torch::Tensor& images,
                                            const std::vector<Weight>& weights) {
  const torch::Tensor more = torch::cat({images, images.narrow(0, 0, 1)});
  try {
    return record(net, arguments(more, weights));
  } catch (const c10::Error& error) {
    throw UsageError("the network works on {} images but not on {}: {}", images.size(0), more.size(0),
                     error.what_without_backtrace());
  }
}

}  // namespace

const Weight* Traced::weight_of(const jit::Value* value) const {
  const auto found = weights.find(value);
  return found == weights.end() ? nullptr : &found->second;
}

const std::vector<size_t>* Traced::batch_dims_of(const jit::Value* value) const {
  const auto found = batch_dims.find(value->unique());
  return found == batch_dims.end() ? nullptr : &found->second;
}

jit::Value* Traced::add_weight(std::string name, const torch::Tensor& value) {
  jit::Value* input = graph->addInput();
  input->setType(c10::TensorType::create(value));
  weights[input] = {std::move(name), plain(value)};
  return input;
}

std::vector<jit::Node*> Traced::nodes_of(Symbol kind) const {
  std::vector<jit::Node*> all;
  for (jit::Node* node : graph->nodes())
    if (node->kind() == kind) all.push_back(node);
  return all;
}

void Traced::remove_unused() {
  jit::EliminateDeadCode(graph);
  for (size_t i = graph->inputs().size(); --i > 0;) {
    if (graph->inputs()[i]->hasUses()) continue;
    weights.erase(graph->inputs()[i]);
    graph->eraseInput(i);
  }
  std::set<std::string> names;
  for (size_t i = 1; i < graph->inputs().size(); ++i) {
    std::string& name = weights.at(graph->inputs()[i]).name;
    const std::string base = name;
    for (int copy = 2; !names.insert(name).second; ++copy) name = fmt::format("{}_{}", base, copy);
  }
}

Traced trace(const Network& net, const torch::Tensor& images) {
  const torch::NoGradGuard no_grad;
  const std::vector<Weight> weights = weights_of(*net.module);
  require_float(weights);
  Traced traced;
  try {
    traced.graph = record(net, arguments(images, weights));
  } catch (const c10::Error& error) {
    throw UsageError("the network cannot be traced with images of {}: {}", shown(images),
                     error.what_without_backtrace());
  }
  find_batch_dims(traced, *record_one_more(net, images, weights));
  for (size_t i = 0; i < weights.size(); ++i)
    traced.weights[traced.graph->inputs()[i + 1]] = {weights[i].name, plain(weights[i].value)};
  traced.images()->setType(c10::TensorType::create(images));
  remove_idle(traced);
  restore_linears(traced);
  free_batch_size(traced);
  traced.remove_unused();
  return traced;
}

std::vector<int64_t> whole_numbers(const jit::Value* value) {
  if (const auto constant = jit::toIValue(value)) {
    if (constant->isInt()) return {constant->toInt()};
    if (constant->isIntList()) return constant->toIntVector();
    return {};
  }
  std::vector<int64_t> all;
  if (value->node()->kind() != c10::prim::ListConstruct) return all;
  for (const jit::Value* item : value->node()->inputs()) {
    const auto number = jit::constant_as<int64_t>(item);
    if (!number) return {};
    all.push_back(*number);
  }
  return all;
}

std::vector<int64_t> for_dimensions(std::vector<int64_t> numbers, size_t dimensions) {
  if (numbers.size() == 1) numbers.resize(dimensions, numbers[0]);
  return numbers;
}

std::vector<int64_t> shape_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  const auto sizes = type ? type->sizes().concrete_sizes() : std::nullopt;
  return sizes ? *sizes : std::vector<int64_t>();
}

}  // namespace trireme::deploy
