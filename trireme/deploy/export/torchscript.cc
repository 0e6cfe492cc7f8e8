#include "trireme/deploy/export/torchscript.h"

#include <torch/csrc/jit/passes/shape_analysis.h>
#include <torch/torch.h>

#include "trireme/core/text.h"

namespace trireme::deploy {
namespace {

namespace jit = torch::jit;

constexpr const char* kClass = "__torch__.trireme.Network";
constexpr const char* kLayerClass = "__torch__.trireme.Layer";

using Compilation = std::shared_ptr<jit::CompilationUnit>;

jit::Module new_module(const char* name, const Compilation& unit) {
  jit::Module module(c10::QualifiedName(name), unit, /*shouldMangle=*/true);
  module.register_attribute("training", c10::BoolType::get(), false);  // freeze() and eval() want to see it
  return module;
}

/// Puts the weight where its name says, "layer1.0.conv1.weight", making the modules on the way.
void place(jit::Module module, const Weight& weight, const Compilation& unit) {
  std::vector<std::string> path = split(weight.name, '.');
  const std::string last = path.back();
  path.pop_back();
  for (const std::string& name : path) {
    if (!module.hasattr(name)) module.register_module(name, new_module(kLayerClass, unit));
    module = module.attr(name).toModule();
  }
  module.register_parameter(last, weight.value, /*is_buffer=*/!weight.value.is_floating_point());
}

/// Replaces the graph's inputs for weights by attributes of its new first input, the module.
void read_from_self(jit::Graph& graph, const std::vector<Weight>& weights, const jit::Module& module) {
  jit::Value* self = graph.insertInput(0, "self")->setType(module.type());
  const jit::WithInsertPoint start(*graph.nodes().begin());
  std::map<std::string, jit::Value*> layers;
  for (size_t i = weights.size(); i-- > 0;) {
    jit::Value* at = self;
    std::string prefix;
    for (const std::string& name : split(weights[i].name, '.')) {
      prefix += "." + name;
      jit::Value*& known = layers[prefix];
      if (known == nullptr) known = graph.insertGetAttr(at, name);
      at = known;
    }
    graph.inputs()[i + 2]->replaceAllUsesWith(at);
    graph.eraseInput(i + 2);
  }
}

/// A method returns one value.
void join_outputs(jit::Graph& graph) {
  if (graph.outputs().size() == 1) return;
  jit::Node* tuple = graph.appendNode(graph.createTuple(graph.outputs()));
  while (!graph.outputs().empty()) graph.eraseOutput(0);
  graph.registerOutput(tuple->output());
}

}  // namespace

jit::Module to_torchscript(const Traced& traced) {
  const auto unit = std::make_shared<jit::CompilationUnit>();
  jit::Module module = new_module(kClass, unit);
  std::vector<Weight> weights;
  for (size_t i = 1; i < traced.graph->inputs().size(); ++i)
    weights.push_back(traced.weights.at(traced.graph->inputs()[i]));
  for (const Weight& weight : weights) place(module, weight, unit);
  const std::shared_ptr<jit::Graph> graph = traced.graph->copy();
  read_from_self(*graph, weights, module);
  graph->inputs()[1]->setDebugName("x");
  jit::EraseShapeInformation(graph);
  join_outputs(*graph);
  module.type()->addMethod(unit->create_function(c10::QualifiedName(*module.type()->name(), "forward"), graph));
  return module;
}

}  // namespace trireme::deploy
