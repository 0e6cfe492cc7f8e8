#include "trireme/deploy/export/recording.h"

#include <fmt/ranges.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/torch.h>

#include <map>
#include <optional>
#include <set>

#include "trireme/core/error.h"

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;

/// While it lives, GPUs multiply in full float32.
class FullPrecision {
 public:
  FullPrecision()
      : convolutions_(at::globalContext().allowTF32CuDNN()), products_(at::globalContext().allowTF32CuBLAS()) {
    set(false, false);
  }
  ~FullPrecision() { set(convolutions_, products_); }
  FullPrecision(const FullPrecision&) = delete;
  FullPrecision& operator=(const FullPrecision&) = delete;

 private:
  static void set(bool convolutions, bool products) {
    at::globalContext().setAllowTF32CuDNN(convolutions);
    at::globalContext().setAllowTF32CuBLAS(products);
  }
  bool convolutions_, products_;
};

/// Images and weights as arguments: what is an argument becomes an input of the graph, whether it wants a gradient or
/// not, where other tensors would become constants in it.
jit::Stack arguments(const torch::Tensor& images, const std::vector<Weight>& weights) {
  jit::Stack stack = {images};
  for (const Weight& weight : weights) stack.emplace_back(weight.value);
  return stack;
}

jit::Stack call(const Network& net, const torch::Tensor& images) {
  jit::Stack results;
  for (const torch::Tensor& output : net.forward(images)) {
    if (!output.defined()) throw UsageError("output {} of forward() is not defined", results.size());
    results.emplace_back(output);
  }
  if (results.empty()) throw UsageError("forward() returns no tensor");
  return results;
}

/// Values by the order in which they come: the same in two graphs of the same operators.
std::map<const jit::Value*, size_t> places(const jit::Graph& graph) {
  std::map<const jit::Value*, size_t> all;
  const auto add = [&](const auto& values) {
    for (const jit::Value* value : values) all.emplace(value, all.size());
  };
  add(graph.inputs());
  for (const jit::Node* node : graph.nodes()) add(node->outputs());
  return all;
}

size_t rank_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  return type ? type->dim().value_or(0) : 0;
}

class Alike {
 public:
  Alike(const jit::Graph& one, const jit::Graph& other) : one_(places(one)), other_(places(other)) {}
  bool operator()(const jit::Node& a, const jit::Node& b) const {
    return a.kind() == b.kind() &&
           std::equal(a.inputs().begin(), a.inputs().end(), b.inputs().begin(), b.inputs().end(),
                      [&](const jit::Value* x, const jit::Value* y) { return one_.at(x) == other_.at(y); }) &&
           std::equal(a.outputs().begin(), a.outputs().end(), b.outputs().begin(), b.outputs().end(),
                      [](const jit::Value* x, const jit::Value* y) { return rank_of(x) == rank_of(y); });
  }

 private:
  std::map<const jit::Value*, size_t> one_, other_;
};

}  // namespace

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

at::ScalarType type_of(const std::vector<Weight>& weights) {
  for (const Weight& weight : weights)
    if (weight.value.is_floating_point()) return weight.value.scalar_type();
  return torch::kFloat;
}

torch::Device device_of(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
}

std::string shown(const torch::Tensor& images) {
  const int64_t count = images.size(0);
  return fmt::format("{} image{} of {}", count, count == 1 ? "" : "s", fmt::join(images.sizes().slice(2), " x "));
}

Recording record(const Network& net, const std::vector<Weight>& weights, const torch::Tensor& images) {
  const torch::NoGradGuard no_grad;
  const torch::Device device = device_of(*net.module);
  std::optional<FullPrecision> full;
  if (device.is_cuda()) full.emplace();
  const auto run = [&](jit::Stack inputs) { return call(net, inputs[0].toTensor()); };
  const auto no_names = [](const torch::Tensor&) { return std::string(); };
  try {
    auto [state, results] = jit::tracer::trace(arguments(images.to(device, type_of(weights)), weights), run, no_names,
                                               /*strict=*/true, /*force_outplace=*/true);
    Recording made{state->graph, images, {}};
    for (const jit::IValue& result : results) made.outputs.push_back(result.toTensor().detach().to(torch::kCPU));
    return made;
  } catch (const c10::Error& error) {
    throw UsageError("the network cannot be traced with images of {}: {}", fmt::join(images.sizes(), " x "),
                     error.what_without_backtrace());
  }
}

void require_same_operators(const Recording& one, const Recording& other) {
  const Alike alike(*one.graph, *other.graph);
  auto theirs = other.graph->nodes().begin();
  const auto refuse = [&](const jit::Node* node) {
    throw UsageError(
        "forward() takes other operators for {} than for {}: they part at {}. A loop over the images, a condition on "
        "their number or on values, or squeeze() without a dimension does this; use operators on the whole batch",
        shown(other.images), shown(one.images), node->kind().toQualString());
  };
  for (const jit::Node* node : one.graph->nodes()) {
    if (theirs == other.graph->nodes().end() || !alike(*node, **theirs)) refuse(node);
    ++theirs;
  }
  if (theirs != other.graph->nodes().end()) refuse(*theirs);
}

}  // namespace trireme::deploy
