#include "trireme/parallel/recompute.h"

#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <array>
#include <limits>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/nn/batch_norm_state.h"
#include "trireme/parallel/batch_norm_operator.h"
#include "trireme/parallel/node_pointer.h"

namespace trireme {
namespace {

using detail::Tensors;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using Part = std::function<Tensors(const Tensors&)>;

// The random numbers of a device as they were when it was made.
struct RandomState {
  explicit RandomState(const c10::Device& device)
      : generator(at::globalContext().defaultGenerator(device)), state(generator.get_state()) {}
  at::Generator generator;
  torch::Tensor state;
};

// The CPU, and the GPUs of the tensors; without tensors the current GPU.
std::vector<RandomState> random_states(const Tensors& tensors) {
  std::set<c10::DeviceIndex> gpus;
  for (const torch::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_cuda()) gpus.insert(tensor.device().index());
  if (tensors.empty() && torch::cuda::is_available())
    gpus.insert(c10::impl::VirtualGuardImpl(torch::kCUDA).getDevice().index());
  std::vector<RandomState> states{RandomState(c10::Device(torch::kCPU))};
  for (const c10::DeviceIndex gpu : gpus) states.emplace_back(c10::Device(torch::kCUDA, gpu));
  return states;
}

// Puts the random numbers back to some states for as long as it lives.
class RandomAsBefore {
 public:
  explicit RandomAsBefore(std::vector<RandomState>& then) {
    for (RandomState& random : then) {
      now_.emplace_back(random.generator.device());
      random.generator.set_state(random.state);
    }
  }
  ~RandomAsBefore() {
    for (RandomState& random : now_) random.generator.set_state(random.state);
  }
  RandomAsBefore(const RandomAsBefore&) = delete;
  RandomAsBefore& operator=(const RandomAsBefore&) = delete;

 private:
  std::vector<RandomState> now_;
};

constexpr std::array kAutocastDevices = {at::kCPU, at::kCUDA};

struct AutocastState {
  bool enabled;
  at::ScalarType type;
};

std::vector<AutocastState> autocast_states() {
  std::vector<AutocastState> states;
  for (const at::DeviceType device : kAutocastDevices)
    states.push_back({at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
  return states;
}

// Sets autocast to some states for as long as it lives, without its cache: a cast that the cache keeps from the first
// call to the second would be a tensor computed before in one of them only.
class AutocastAsBefore {
 public:
  explicit AutocastAsBefore(const std::vector<AutocastState>& then) {
    set(then);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastAsBefore() {
    set(now_);
    at::autocast::set_autocast_cache_enabled(cache_now_);
  }
  AutocastAsBefore(const AutocastAsBefore&) = delete;
  AutocastAsBefore& operator=(const AutocastAsBefore&) = delete;

 private:
  static void set(const std::vector<AutocastState>& states) {
    for (size_t i = 0; i < states.size(); ++i) {
      at::autocast::set_autocast_enabled(kAutocastDevices[i], states[i].enabled);
      at::autocast::set_autocast_dtype(kAutocastDevices[i], states[i].type);
    }
  }
  const std::vector<AutocastState> now_ = autocast_states();
  const bool cache_now_ = at::autocast::is_autocast_cache_enabled();
};

// Tells the nodes of one computation from those that were there before. A node knows the thread that made it and its
// number there; the nodes in which gradients of leaves are added up have the largest number of all.
class Computation {
 public:
  bool made(const Node& node) const {
    return node.thread_id() == thread_ && node.sequence_nr() >= first_ &&
           node.sequence_nr() != std::numeric_limits<uint64_t>::max();
  }

  // Calls `visit` on each edge that leads out of the computation, root or not; it may change the edge.
  template <typename Visit>
  void for_each_end(edge_list& roots, const Visit& visit) const {
    std::vector<edge_list*> left{&roots};
    std::set<Node*> seen;
    while (!left.empty()) {
      edge_list& edges = *left.back();
      left.pop_back();
      for (Edge& edge : edges) {
        if (!edge.is_valid()) continue;
        if (!made(*edge.function))
          visit(edge);
        else if (seen.insert(edge.function.get()).second)
          left.push_back(&edge.function->next_edges());
      }
    }
  }

 private:
  uint64_t thread_ = at::RecordFunction::currentThreadId();
  uint64_t first_ = at::sequence_number::peek();
};

using EdgeKey = std::pair<Node*, uint32_t>;

EdgeKey key_of(const Edge& edge) {
  return {edge.function.get(), edge.input_nr};
}

// Leaves of a graph of their own.
Tensors detached(const Tensors& inputs, const std::vector<bool>& needs_gradient) {
  Tensors leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].defined() ? inputs[i].detach() : inputs[i]);
    if (needs_gradient[i]) leaves.back().set_requires_grad(true);
  }
  return leaves;
}

edge_list edges_of(const Tensors& tensors) {
  edge_list edges;
  for (const torch::Tensor& tensor : tensors)
    edges.push_back(tensor.defined() && tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : Edge());
  return edges;
}

std::vector<bool> which_need_gradients(const Tensors& tensors) {
  std::vector<bool> needs;
  for (const torch::Tensor& tensor : tensors) needs.push_back(tensor.defined() && tensor.requires_grad());
  return needs;
}

// Takes the place of an end: keeps the gradient that arrives there.
struct Catcher : Node {
  explicit Catcher(const Edge& end) {
    const auto& expected = end.function->input_metadata(end.input_nr);
    add_input_metadata(at::empty_symint(expected.shape_as_dim_vector(), expected.options()));
  }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    gradient = gradients[0];
    return {};
  }
  torch::Tensor gradient;
};

class RecomputeNode : public Node {
 public:
  RecomputeNode(edge_list ends, Part f, const Tensors& inputs, std::vector<RandomState> random)
      : Node(with(edges_of(inputs), ends)),
        f_(std::move(f)),
        needs_gradient_(which_need_gradients(inputs)),
        ends_(std::move(ends)),
        random_(std::move(random)) {
    for (const torch::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  std::string name() const override { return "trireme::checkpoint"; }

  void release_variables() override {
    inputs_.clear();
    f_ = nullptr;
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (torch::GradMode::is_enabled())
      throw UsageError("checkpoint(): backward with create_graph cannot pass through it; call the function directly");
    TORCH_CHECK(f_, "Trying to backward through the graph a second time: pass retain_graph = true to the first");
    const Tensors leaves = detached(saved_inputs(), needs_gradient_);
    const edge_list leaf_edges = edges_of(leaves);
    const Computation again;
    const Tensors outputs = computed_again(leaves);
    edge_list roots = edges_of(outputs);
    const Catchers catchers = cut(again, roots, leaf_edges);
    run(roots, gradients);
    return caught(catchers, leaf_edges);
  }

 private:
  using Catchers = std::map<EdgeKey, parallel::PointerTo<Catcher>>;

  static edge_list with(edge_list edges, const edge_list& more) {
    edges.insert(edges.end(), more.begin(), more.end());
    return edges;
  }

  Tensors saved_inputs() const {
    Tensors inputs;
    for (const torch::autograd::SavedVariable& input : inputs_) inputs.push_back(input.unpack());
    return inputs;
  }

  Tensors computed_again(const Tensors& leaves) {
    const torch::AutoGradMode with_graph(true);
    const RandomAsBefore same_numbers(random_);
    const AutocastAsBefore same_types(autocast_);
    parallel::heed_running_statistics();
    const nn::RunningStatisticsStay counted_before;
    return f_(leaves);
  }

  // Puts a catcher at each end of the new graph. They must be the ends of the first graph.
  Catchers cut(const Computation& again, edge_list& roots, const edge_list& leaf_edges) const {
    Catchers catchers;
    for (const edge_list& known : {leaf_edges, ends_})
      for (const Edge& edge : known)
        if (edge.is_valid()) catchers.emplace(key_of(edge), nullptr);
    again.for_each_end(roots, [&](Edge& edge) {
      const auto found = catchers.find(key_of(edge));
      if (found == catchers.end()) fail_for_other_ends();
      if (!found->second) found->second = parallel::make_node<Catcher>(edge);
      edge = Edge(found->second, 0);
    });
    for (const Edge& end : ends_)
      if (!catchers.at(key_of(end))) fail_for_other_ends();
    return catchers;
  }

  [[noreturn]] static void fail_for_other_ends() {
    throw UsageError(
        "checkpoint(): called again in backward, the function used other parameters or tensors than in forward; "
        "capture by value what changes after the call, such as a loop variable or a tensor that is assigned to, or "
        "pass the tensor as an argument");
  }

  static void run(const edge_list& roots, const torch::autograd::variable_list& gradients) {
    edge_list from;
    torch::autograd::variable_list given;
    for (size_t i = 0, next = 0; i < roots.size(); ++i) {
      if (!roots[i].is_valid()) continue;
      const torch::Tensor& gradient = gradients.at(next++);
      if (!gradient.defined()) continue;
      from.push_back(roots[i]);
      given.push_back(gradient);
    }
    if (from.empty()) return;
    torch::autograd::Engine::get_default_engine().execute(from, given, /*keep_graph=*/false, /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }

  torch::autograd::variable_list caught(const Catchers& catchers, const edge_list& leaf_edges) const {
    torch::autograd::variable_list gradients;
    for (const edge_list& edges : {leaf_edges, ends_})
      for (const Edge& edge : edges) {
        const auto found = edge.is_valid() ? catchers.find(key_of(edge)) : catchers.end();
        gradients.push_back(found != catchers.end() && found->second ? found->second->gradient : torch::Tensor());
      }
    return gradients;
  }

  Part f_;
  std::vector<bool> needs_gradient_;
  edge_list ends_;  // beside the inputs; next_edges() has them too, but a checkpoint around this one may cut those
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<RandomState> random_;
  std::vector<AutocastState> autocast_ = autocast_states();
};

// The ends of the graph of `outputs`, each once, without those in `leaves`.
edge_list ends_of(const Computation& computation, const Tensors& outputs, const Tensors& leaves) {
  edge_list roots = edges_of(outputs), ends;
  const edge_list leaf_edges = edges_of(leaves);
  std::set<EdgeKey> known;
  for (const Edge& edge : leaf_edges) known.insert(key_of(edge));
  computation.for_each_end(roots, [&](const Edge& edge) {
    if (known.insert(key_of(edge)).second) ends.push_back(edge);
  });
  return ends;
}

// Without the graph that made them, but with one node behind all that need gradients.
Tensors hung_on(const parallel::NodePointer& node, const Tensors& outputs) {
  Tensors results;
  for (const torch::Tensor& output : outputs) {
    const bool needs_gradient = output.defined() && output.requires_grad();
    results.push_back(needs_gradient ? output.detach() : output);
    if (needs_gradient) torch::autograd::create_gradient_edge(results.back(), node);
  }
  return results;
}

}  // namespace

Tensors detail::recomputed(Part f, const Tensors& inputs) {
  if (!torch::GradMode::is_enabled()) return f(inputs);
  std::vector<RandomState> random = random_states(inputs);
  const Tensors leaves = detached(inputs, which_need_gradients(inputs));
  const Computation first;
  Tensors outputs;
  {
    const AutocastAsBefore without_cache(autocast_states());
    outputs = f(leaves);
  }
  edge_list ends = ends_of(first, outputs, leaves);
  return hung_on(parallel::make_node<RecomputeNode>(std::move(ends), std::move(f), inputs, std::move(random)), outputs);
}

}  // namespace trireme
