#include "trireme/deploy/export/traced.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

constexpr int kSizeStep = 32;  // what networks halve five times stays whole

Symbol aten(const char* name) {
  return Symbol::fromQualString(std::string("aten::") + name);
}

torch::Tensor plain(const torch::Tensor& value) {
  return value.detach().to(torch::kCPU).contiguous();
}

// --- recordings

Recording record_more(const Network& net, const std::vector<Weight>& weights, const Recording& first,
                      const torch::Tensor& images) {
  try {
    Recording made = record(net, weights, images);
    require_same_operators(first, made);
    return made;
  } catch (const UsageError& error) {
    throw UsageError("the network works on {} but not on {}: {}", shown(first.images), shown(images), error.what());
  }
}

std::vector<Recording> record_batches(const Network& net, const std::vector<Weight>& weights,
                                      const bundle::Input& input) {
  std::vector<Recording> all;
  all.push_back(record(net, weights, random_images(input, kTracedBatch)));
  for (const int64_t batch : {kTracedBatch + 1, int64_t{1}})
    all.push_back(record_more(net, weights, all[0], random_images(input, batch)));
  return all;
}

struct SizeStep {
  int height;
  int width;
  int odd_pixels;
  int64_t batch;
};

bundle::Input larger(bundle::Input input, int height, int width) {
  input.height += height;
  input.width += width;
  return input;
}

/// Larger by these steps, and by some pixels more, which change even sizes to odd ones, so that it shows how halves are
/// rounded. A network that does not take such images rounds nothing.
Recording record_odd(const Network& net, const std::vector<Weight>& weights, const Recording& first,
                     const bundle::Input& input, const SizeStep& step) {
  const auto recorded = [&](int pixels) {
    return record(net, weights, random_images(larger(input, step.height + pixels, step.width + pixels), step.batch));
  };
  Recording made = [&] {
    try {
      return recorded(step.odd_pixels);
    } catch (const UsageError&) {
      return recorded(0);
    }
  }();
  require_same_operators(first, made);
  return made;
}

/// Heights and widths that grow by different steps, so that none is taken for the other. The last is to be held out.
std::vector<Recording> record_sizes(const Network& net, const std::vector<Weight>& weights, const Recording& first,
                                    const bundle::Input& input) {
  std::vector<Recording> all;
  all.push_back(record_more(net, weights, first, random_images(larger(input, kSizeStep, 2 * kSizeStep), kTracedBatch)));
  for (const SizeStep& step :
       {SizeStep{.height = 2 * kSizeStep, .width = kSizeStep, .odd_pixels = 1, .batch = kTracedBatch + 1},
        SizeStep{.height = 3 * kSizeStep, .width = 4 * kSizeStep, .odd_pixels = 3, .batch = kTracedBatch}})
    all.push_back(record_odd(net, weights, first, input, step));
  return all;
}

/// Whether the graph is now right for images of any size.
bool free_image_size(const Network& net, const std::vector<Weight>& weights, const bundle::Input& input,
                     Traced& traced) {
  std::vector<Recording>& recordings = traced.recordings;
  const size_t batches = recordings.size();
  try {
    for (Recording& one : record_sizes(net, weights, recordings[0], input)) recordings.push_back(std::move(one));
    traced.shapes = recorded_shapes(recordings);
    if (const auto unknown = free_sizes(recordings, traced.shapes, /*hold_out_last=*/true))
      throw UsageError("{}", *unknown);
    return true;
  } catch (const std::exception& error) {
    log_info("the exported files take images of {} x {} only: {}", input.height, input.width, error.what());
    recordings.resize(batches);
    return false;
  }
}

// --- passes over the graph

/// What does nothing in inference: the output is the first input.
void remove_idle(Traced& traced) {
  for (const char* name : {"dropout", "feature_dropout", "detach", "alias"})
    for (jit::Node* node : traced.nodes_of(aten(name))) {
      const bool active = std::string_view(name).ends_with("dropout") &&
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
  if (turned->node()->kind() != c10::aten::t || traced.weight_of(turned->node()->input()) == nullptr) return;
  const jit::WithInsertPoint here(node);
  if (bias == nullptr) bias = traced.graph->insertConstant(jit::IValue());
  traced.replace(node->output(), traced.graph->insert(c10::aten::linear, {x, turned->node()->input(), bias}));
}

void restore_linears(Traced& traced) {
  for (jit::Node* node : traced.nodes_of(c10::aten::addmm))
    if (is_one(node, "alpha") && is_one(node, "beta"))
      restore_linear(traced, node, node->namedInput("mat1"), node->namedInput("mat2"), node->namedInput("self"));
  for (jit::Node* node : traced.nodes_of(c10::aten::matmul))
    restore_linear(traced, node, node->input(0), node->input(1), nullptr);
}

bool is_computed(const jit::Value* value) {
  return value->node()->kind() != c10::prim::Constant;
}

/// One size of a view may stay open: "what is left". And a view becomes a reshape, which does not depend on how its
/// input lies in memory: engines feed images in other layouts than training does.
void simplify_views(Traced& traced) {
  for (const char* name : {"view", "reshape"})
    for (jit::Node* node : traced.nodes_of(aten(name))) {
      jit::Node* list = node->input(1)->node();
      if (list->kind() != c10::prim::ListConstruct) continue;  // view(dtype)
      const jit::WithInsertPoint here(node);
      std::vector<jit::Value*> sizes(list->inputs().begin(), list->inputs().end());
      const bool has_open = std::any_of(sizes.begin(), sizes.end(), [](const jit::Value* size) {
        return jit::constant_as<int64_t>(size) == std::optional<int64_t>(-1);
      });
      if (!has_open && std::count_if(sizes.begin(), sizes.end(), is_computed) == 1)
        *std::find_if(sizes.begin(), sizes.end(), is_computed) = traced.graph->insertConstant(int64_t{-1});
      jit::Value* shape = traced.graph->insertNode(traced.graph->createList(c10::IntType::get(), sizes))->output();
      traced.replace(node->output(), traced.graph->insert(aten("reshape"), {node->input(0), shape}));
    }
}

/// A tensor that forward() makes on a device is made where the images are.
void follow_device(const Traced& traced) {
  const jit::WithInsertPoint start(*traced.graph->nodes().begin());
  jit::Value* device = traced.graph->insert(c10::prim::device, {traced.images()});
  for (jit::Node* node : traced.nodes_of(c10::prim::Constant))
    if (node->output()->type()->kind() == c10::TypeKind::DeviceObjType) node->output()->replaceAllUsesWith(device);
}

/// Tensors that forward() brought along become weights, which move to another device with the others.
void keep_constants(Traced& traced) {
  for (jit::Node* node : traced.nodes_of(c10::prim::Constant)) {
    const auto constant = jit::toIValue(node->output());
    if (!constant || !constant->isTensor() || (constant->toTensor().dim() == 0 && constant->toTensor().is_cpu()))
      continue;
    jit::Value* weight = traced.add_weight(fmt::format("constants.{}", traced.weights.size()), constant->toTensor());
    node->output()->replaceAllUsesWith(weight);
  }
}

jit::Value* converted(Traced& traced, jit::Value* value, at::ScalarType type) {
  jit::Value* result = traced.graph->insert(c10::aten::to, {value, static_cast<int64_t>(type), false, false});
  result->setType(value->type()->expect<c10::TensorType>()->withScalarType(type));
  if (const auto known = traced.shapes.find(value->unique()); known != traced.shapes.end())
    traced.shapes[result->unique()] = known->second;
  return result;
}

/// Images and scores are float32 for all callers, whatever the network computes in.
void convert_ends(Traced& traced) {
  if (traced.type != torch::kFloat) {
    const jit::WithInsertPoint start(*traced.graph->nodes().begin());
    jit::Value* images = converted(traced, traced.images(), traced.type);
    traced.images()->replaceAllUsesAfterNodeWith(images->node(), images);
  }
  const jit::WithInsertPoint end(traced.graph->return_node());
  for (size_t i = 0; i < traced.outputs().size(); ++i) {
    const auto type = traced.outputs()[i]->type()->expect<c10::TensorType>()->scalarType();
    if (type && at::isFloatingType(*type) && *type != torch::kFloat)
      traced.graph->block()->replaceOutput(i, converted(traced, traced.outputs()[i], torch::kFloat));
  }
  for (Recording& recording : traced.recordings)
    for (torch::Tensor& output : recording.outputs)
      if (output.is_floating_point()) output = output.to(torch::kFloat);
}

}  // namespace

torch::Tensor random_images(const bundle::Input& input, int64_t batch) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(batch));
  return torch::randn({batch, input.channels, input.height, input.width}, generator);
}

const Weight* Traced::weight_of(const jit::Value* value) const {
  const auto found = weights.find(value);
  return found == weights.end() ? nullptr : &found->second;
}

std::vector<size_t> Traced::open_dims(const jit::Value* value) const {
  const auto found = shapes.find(value->unique());
  if (found == shapes.end()) return {};
  std::vector<size_t> open;
  for (size_t dim = 0; dim < found->second[0].size(); ++dim)
    if (std::any_of(found->second.begin(), found->second.end(),
                    [&](const Shape& shape) { return shape[dim] != found->second[0][dim]; }))
      open.push_back(dim);
  return open;
}

bool Traced::is_batch(const jit::Value* value, size_t dim) const {
  const auto found = shapes.find(value->unique());
  if (found == shapes.end() || dim >= found->second[0].size()) return false;
  return std::equal(recordings.begin(), recordings.end(), found->second.begin(), found->second.end(),
                    [&](const Recording& one, const Shape& shape) { return one.images.size(0) == shape[dim]; });
}

jit::Value* Traced::add_weight(std::string name, const torch::Tensor& value) {
  jit::Value* input = graph->addInput();
  input->setType(c10::TensorType::create(value));
  weights[input] = {std::move(name), plain(value)};
  return input;
}

void Traced::replace(jit::Value* value, jit::Value* by) {
  by->setType(value->type());
  if (const auto known = shapes.find(value->unique()); known != shapes.end()) shapes[by->unique()] = known->second;
  value->replaceAllUsesWith(by);
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

Traced trace(const Network& net, const bundle::Input& input, bool any_size) {
  const torch::NoGradGuard no_grad;
  const std::vector<Weight> weights = weights_of(*net.module);
  Traced traced{.type = type_of(weights)};
  traced.recordings = record_batches(net, weights, input);
  traced.graph = traced.recordings[0].graph;
  traced.any_size = any_size && free_image_size(net, weights, input, traced);
  if (!traced.any_size) {
    traced.shapes = recorded_shapes(traced.recordings);
    if (const auto unknown = free_sizes(traced.recordings, traced.shapes)) throw UsageError("{}", *unknown);
  }
  for (size_t i = 0; i < weights.size(); ++i)
    traced.weights[traced.graph->inputs()[i + 1]] = {weights[i].name, plain(weights[i].value)};
  traced.images()->setType(c10::TensorType::create(traced.recordings[0].images));
  remove_idle(traced);
  restore_linears(traced);
  simplify_views(traced);
  follow_device(traced);
  keep_constants(traced);
  convert_ends(traced);
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

}  // namespace trireme::deploy
