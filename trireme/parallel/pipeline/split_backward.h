// A backward in two halves: first the gradients of the inputs, which another rank waits for; later those of the weights.
//
//   SplitBackward backward(outputs, gradients, leaves);
//   send(backward.input_gradients());
//   …
//   backward.weight_gradients();                   // adds to the .grad of every other leaf of the graph
//
// How. A node is on the way when an input can be reached from it. The first half runs these nodes alone, and keeps the
// gradient that arrives at each of them from which an edge leads off the way, to weights. Then the edges on the way are
// cut, and the second half begins at those nodes. So nothing is computed twice, except by nodes of operators that compute all of their gradients at once (checkpoint()).
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include <vector>

namespace trireme::parallel {

class SplitBackward {
 public:
  /// `outputs` that need a gradient, each with the gradient that has arrived (one of its shape). `leaves`: the inputs.
  SplitBackward(const std::vector<torch::Tensor>& outputs, const std::vector<torch::Tensor>& gradients,
                const std::vector<torch::Tensor>& leaves);

  /// Of each leaf; undefined for one that no output depends on. Once.
  std::vector<torch::Tensor> input_gradients();
  /// After input_gradients(), once; frees the graph.
  void weight_gradients();

 private:
  using GraphEdge = torch::autograd::Edge*;

  void find_ways(const std::vector<torch::Tensor>& leaves);
  void cut();

  torch::autograd::edge_list roots_;
  std::vector<torch::Tensor> root_gradients_;
  torch::autograd::edge_list inputs_;   // the leaves'
  torch::autograd::edge_list forks_;    // where the second half begins; their gradients come with the first half
  torch::autograd::edge_list weights_;  // where it ends
  std::vector<GraphEdge> on_the_way_;   // in the nodes of the graph
  torch::autograd::edge_list begin_;    // of the second half, with
  std::vector<torch::Tensor> begin_gradients_;
};

}  // namespace trireme::parallel
