#include "trireme/parallel/pipeline/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace trireme::parallel {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using GraphNode = torch::autograd::Node;

// What can be reached from each node of a graph.
struct Reach {
  bool input = false;
  bool weight = false;
};

class ReachOfNodes {
 public:
  ReachOfNodes(const edge_list& roots, const std::unordered_set<const GraphNode*>& inputs) {
    for (const Edge& root : roots) visit(root.function.get(), inputs);
  }
  const Reach& of(const Edge& edge) const { return reach_.at(edge.function.get()); }

 private:
  // Depth first, without recursion: graphs are deep.
  void visit(GraphNode* root, const std::unordered_set<const GraphNode*>& inputs) {
    std::vector<std::pair<GraphNode*, size_t>> path{{root, 0}};
    if (!reach_.emplace(root, at(root, inputs)).second) return;
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (next == node->next_edges().size()) {
        const Reach done = reach_.at(node);
        path.pop_back();
        if (!path.empty()) add(path.back().first, done);
        continue;
      }
      GraphNode* below = node->next_edges()[next++].function.get();
      if (!below) continue;
      const auto [found, is_new] = reach_.emplace(below, at(below, inputs));
      if (is_new)
        path.emplace_back(below, 0);
      else
        add(node, found->second);
    }
  }
  static Reach at(GraphNode* node, const std::unordered_set<const GraphNode*>& inputs) {
    const bool input = inputs.contains(node);
    return {.input = input, .weight = !input && dynamic_cast<AccumulateGrad*>(node) != nullptr};
  }
  void add(const GraphNode* node, const Reach& below) {
    Reach& reach = reach_.at(node);
    reach.input = reach.input || below.input;
    reach.weight = reach.weight || below.weight;
  }

  std::unordered_map<const GraphNode*, Reach> reach_;
};

}  // namespace

SplitBackward::SplitBackward(const std::vector<torch::Tensor>& outputs, const std::vector<torch::Tensor>& gradients,
                             const std::vector<torch::Tensor>& leaves)
    : root_gradients_(gradients) {
  for (const torch::Tensor& output : outputs) roots_.push_back(torch::autograd::impl::gradient_edge(output));
  find_ways(leaves);
}

void SplitBackward::find_ways(const std::vector<torch::Tensor>& leaves) {
  std::unordered_set<const GraphNode*> ends;
  for (const torch::Tensor& leaf : leaves) {
    inputs_.push_back(torch::autograd::impl::gradient_edge(leaf));
    ends.insert(inputs_.back().function.get());
  }
  const ReachOfNodes reach(roots_, ends);
  for (size_t i = 0; i < roots_.size(); ++i)
    if (!reach.of(roots_[i]).input) {
      begin_.push_back(roots_[i]);
      begin_gradients_.push_back(root_gradients_[i]);
    }
  std::unordered_set<const GraphNode*> seen;
  edge_list left = roots_;
  while (!left.empty()) {
    const Edge edge = left.back();
    left.pop_back();
    if (!seen.insert(edge.function.get()).second) continue;
    if (dynamic_cast<AccumulateGrad*>(edge.function.get()) && !reach.of(edge).input) weights_.push_back(edge);
    bool forks = false;
    for (Edge& next : edge.function->next_edges()) {
      if (!next.is_valid()) continue;
      left.push_back(next);
      if (reach.of(next).input) on_the_way_.push_back(&next);
      forks = forks || (reach.of(edge).input && !reach.of(next).input && reach.of(next).weight);
    }
    if (forks)
      for (uint32_t input = 0; input < edge.function->num_inputs(); ++input) forks_.emplace_back(edge.function, input);
  }
}

std::vector<torch::Tensor> SplitBackward::input_gradients() {
  std::vector<torch::Tensor> gradients(inputs_.size());
  edge_list wanted = inputs_;
  wanted.insert(wanted.end(), forks_.begin(), forks_.end());
  if (wanted.empty() || roots_.empty()) return gradients;
  const auto arrived = Engine::get_default_engine().execute(roots_, root_gradients_, /*keep_graph=*/true,
                                                            /*create_graph=*/false, /*accumulate_grad=*/false, wanted);
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = arrived[i];
  for (size_t i = 0; i < forks_.size(); ++i) {
    if (!arrived[gradients.size() + i].defined()) continue;
    begin_.push_back(forks_[i]);
    begin_gradients_.push_back(arrived[gradients.size() + i]);
  }
  cut();
  return gradients;
}

// The gradients that these edges carry have arrived already; a second time they would count twice. All are held
// until the last is cut: an edge lies in a node that only another edge may keep alive.
void SplitBackward::cut() {
  const std::vector<GraphEdge> edges = std::exchange(on_the_way_, {});
  edge_list held;
  for (const GraphEdge edge : edges) held.push_back(std::exchange(*edge, Edge()));
}

void SplitBackward::weight_gradients() {
  if (!begin_.empty() && !weights_.empty())
    Engine::get_default_engine().execute(begin_, begin_gradients_, /*keep_graph=*/false, /*create_graph=*/false,
                                         /*accumulate_grad=*/true, weights_);
  *this = SplitBackward({}, {}, {});
}

}  // namespace trireme::parallel
