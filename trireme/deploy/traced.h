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

#include "trireme/deploy/network.h"

namespace trireme::deploy {

struct Weight {
  std::string name;
  torch::Tensor value;  ///< float32, contiguous, on the CPU
};

struct Traced {
  std::shared_ptr<torch::jit::Graph> graph;
  std::map<const torch::jit::Value*, Weight> weights;

  torch::jit::Value* images() const { return graph->inputs()[0]; }
  torch::jit::Value* scores() const { return graph->outputs()[0]; }
  /// nullptr: it is computed.
  const Weight* weight_of(const torch::jit::Value* value) const;
  /// A new input of the graph.
  torch::jit::Value* add_weight(std::string name, const torch::Tensor& value);
  /// All nodes of a kind, in the order of computation.
  std::vector<torch::jit::Node*> nodes_of(c10::Symbol kind) const;
  /// Removes what does not lead to the output, weights too, and gives weights of the same name different ones.
  void remove_unused();
};

/// Runs the network once, in the mode in which it is; nothing of it changes. UsageError when it cannot be traced: it
/// does not take such images, does not return a tensor, or is not in float32.
Traced trace(const Network& net, const torch::Tensor& images);

/// Of a constant, or of a list of constants.
std::vector<int64_t> whole_numbers(const torch::jit::Value* value);
/// The shape in the run that was traced.
std::vector<int64_t> shape_of(const torch::jit::Value* value);

}  // namespace trireme::deploy
