// A layer of a pipeline: its name and how to make it. Only the rank that has it makes it.
//
//   std::vector<PipelineLayer> layers{
//       {"embed", [] { return torch::nn::Embedding(1000, 64); }},
//       {"block", [] { return Block(64); }, {.recompute = true}},
//       {"head", [] { return Head(64, 1000); }, {.tied = {{"weight", "embed.weight"}}}}};
//
// forward() takes the tensors that the layer before returns: one, several, or a std::vector of them; and returns a tensor,
// a std::vector, std::tuple or std::pair of tensors. They may be of any type and shape; gradients flow through those of
// floating types.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/parallel/module_pointer.h"
#include "trireme/parallel/recompute.h"

namespace trireme {

struct LayerOptions {
  bool recompute = false;  ///< what forward computed is dropped and computed again in backward: checkpoint()
  /// Parameters that are those of another layer: {"weight", "embed.weight"}. They begin with the other's values, and both
  /// get the sum of their gradients, on whatever ranks they lie.
  std::map<std::string, std::string> tied = {};
};

namespace detail {

/// A module with its forward, whatever its type.
struct LayerModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
};

template <typename Held, size_t... I>
bool forward_of(Held& held, const Tensors& inputs, Tensors& outputs, std::index_sequence<I...>) {
  if constexpr (requires { to_list(held->forward(inputs[I]...)); }) {
    if (inputs.size() != sizeof...(I)) return false;
    outputs = to_list(held->forward(inputs[I]...));
    return true;
  }
  return false;
}

template <typename Held>
LayerModule layer_module(const std::string& name, Held held) {
  static_assert(!std::derived_from<Held, torch::nn::Module>,
                "a layer's function returns a holder that TORCH_MODULE makes, or a std::shared_ptr of the module");
  auto pointer = module_pointer(held);
  auto forward = [name, held](const Tensors& inputs) mutable {
    Tensors outputs;
    const auto takes = [&]<size_t N>(std::integral_constant<size_t, N>) {
      return forward_of(held, inputs, outputs, std::make_index_sequence<N>());
    };
    if (takes(std::integral_constant<size_t, 1>()) || takes(std::integral_constant<size_t, 2>()) ||
        takes(std::integral_constant<size_t, 3>()) || takes(std::integral_constant<size_t, 4>()) ||
        takes(std::integral_constant<size_t, 5>()) || takes(std::integral_constant<size_t, 6>()))
      return outputs;
    if constexpr (
        !requires { held->forward(inputs[0]); } && requires { to_list(held->forward(inputs)); })
      return to_list(held->forward(inputs));
    throw UsageError("Pipeline: layer '{}' got {} tensors, but its forward() takes another number", name,
                     inputs.size());
  };
  return {std::move(pointer), std::move(forward)};
}

}  // namespace detail

class PipelineLayer {
 public:
  /// `make` is called by the rank that has the layer, more than once, and returns a module holder or a std::shared_ptr of
  /// a module. The name has no dots; parameters are named after it: "block.fc.weight".
  template <std::invocable Make>
  PipelineLayer(std::string name, Make make, LayerOptions options = {})
      : name_(std::move(name)),
        options_(std::move(options)),
        make_([make = std::move(make), name = name_]() mutable { return detail::layer_module(name, make()); }) {}

  /// A layer of a network of the zoo, models::NetworkLayer, or anything else with a name, a function and ties.
  template <typename Layer>
    requires requires(const Layer& layer) {
      std::string(layer.name);
      layer.make();
      layer.tied;
    }
  PipelineLayer(const Layer& layer)  // NOLINT(google-explicit-constructor): lists of them become lists of ours
      : PipelineLayer(layer.name, layer.make, {.tied = layer.tied}) {}

  const std::string& name() const { return name_; }
  const LayerOptions& options() const { return options_; }
  detail::LayerModule make() const { return make_(); }

 private:
  std::string name_;
  LayerOptions options_;
  std::function<detail::LayerModule()> make_;
};

}  // namespace trireme
