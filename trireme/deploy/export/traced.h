// A network's computation as a graph of aten operators, with its weights beside it: what all of this module works on.
//
//   Traced traced = trace(net, torch::zeros({2, 3, 224, 224}));
//   fold_batch_norms(traced);                                           // fold.h
//   torch::jit::Module module = to_torchscript(traced);                 // torchscript.h
//
// Words: the graph's first input is the images; every other input is a weight, which has a name (that of the network's
// parameter or buffer) and a value. The operators are functional: none writes into its input.
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/deploy/export/network.h"

namespace trireme::deploy {

struct Weight {
  std::string name;
  torch::Tensor value;  ///< float32, contiguous, on the CPU
};

struct Traced {
  std::shared_ptr<torch::jit::Graph> graph;
  std::map<const torch::jit::Value*, Weight> weights;
  /// By Value::unique(), the dimensions that change with the number of images. None at all where another number of
  /// images takes other operators.
  std::map<size_t, std::vector<size_t>> batch_dims = {};

  torch::jit::Value* images() const { return graph->inputs()[0]; }
  torch::jit::Value* scores() const { return graph->outputs()[0]; }
  /// nullptr: it is computed.
  const Weight* weight_of(const torch::jit::Value* value) const;
  /// nullptr: it is not known which dimensions change with the number of images, or the value is a weight.
  const std::vector<size_t>* batch_dims_of(const torch::jit::Value* value) const;
  /// A new input of the graph.
  torch::jit::Value* add_weight(std::string name, const torch::Tensor& value);
  /// All nodes of a kind, in the order of computation.
  std::vector<torch::jit::Node*> nodes_of(c10::Symbol kind) const;
  /// Removes what does not lead to the output, weights too, and gives weights of the same name different ones.
  void remove_unused();
};

/// Runs the network on these images and on one more, in the mode in which it is; nothing of it changes. The graph is
/// that of the first run. UsageError when it cannot be traced: it does not take such images, or not one more of them,
/// does not return a tensor, or is not in float32.
Traced trace(const Network& net, const torch::Tensor& images);

/// Of a constant, or of a list of constants.
std::vector<int64_t> whole_numbers(const torch::jit::Value* value);
/// {2} for two dimensions -> {2, 2}, as torch reads strides and the like.
std::vector<int64_t> for_dimensions(std::vector<int64_t> numbers, size_t dimensions);
/// The shape in the run that was traced.
std::vector<int64_t> shape_of(const torch::jit::Value* value);

}  // namespace trireme::deploy
