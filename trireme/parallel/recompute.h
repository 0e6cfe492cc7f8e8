// Memory for time: what a part of a model has computed is dropped after forward and computed again in backward.
//
//   x = checkpoint([block](torch::Tensor x) { return block->forward(x); }, x);
//   auto [y, state] = checkpoint([cell](torch::Tensor x, torch::Tensor h) { return cell->forward(x, h); }, x, h);
//
// libtorch has this in Python only. Gradients are those of the plain call, for the tensors that are passed and for
// those that the function uses without being passed them: parameters, under DataParallel too, and computed tensors that
// a lambda captures. Random layers inside (dropout) draw the same numbers both times, on the CPU and on CUDA, autocast
// is as it was, and batch normalisation updates its running mean and variance once (but a layer without momentum, which
// weighs by the number of its calls, counts both).
//
// The function is called again in backward, so it must own what it captures: capture by value, not a local variable or
// a loop counter by reference. Weights and mode (train(), eval()) must be the same in both calls.
//
// How it works. Forward runs the function with its graph, notes where the graph ends (in parameters and in tensors that
// were computed before), and drops it. The result hangs on one node with an edge to each of these ends. Its backward
// runs the function again, cuts the new graph at the same ends, and passes on the gradients that arrive there. So the
// backward of the program sees one graph, and each parameter gets its gradient once.
#pragma once

#include <torch/types.h>

#include <concepts>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {
namespace detail {

using Tensors = std::vector<torch::Tensor>;

Tensors recomputed(std::function<Tensors(const Tensors&)> f, const Tensors& inputs);

inline Tensors to_list(torch::Tensor tensor) {
  return {std::move(tensor)};
}
inline Tensors to_list(Tensors tensors) {
  return tensors;
}
template <typename Tuple>
Tensors to_list(const Tuple& tuple) {
  return std::apply([](const auto&... tensors) { return Tensors{tensors...}; }, tuple);
}

template <typename Result>
Result from_list(const Tensors& tensors) {
  if constexpr (std::same_as<Result, torch::Tensor>)
    return tensors.at(0);
  else if constexpr (std::same_as<Result, Tensors>)
    return tensors;
  else
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Result{tensors.at(I)...};
    }(std::make_index_sequence<std::tuple_size_v<Result>>());
}

template <typename F, size_t... I>
auto call(F& f, const Tensors& tensors, std::index_sequence<I...>) {
  return f(tensors[I]...);
}

}  // namespace detail

/// Any number of tensors in; a tensor, a std::vector of tensors, or a std::tuple or std::pair of tensors out. `f` must
/// give the same result when called again. Without gradient mode it is just called. backward() throws UsageError when
/// the second call uses other parameters or captured tensors than the first did, and for create_graph.
template <typename F, std::convertible_to<torch::Tensor>... T>
auto checkpoint(F f, const T&... tensors) {
  constexpr auto kInputs = std::index_sequence_for<T...>();
  using Result = decltype(detail::call(f, detail::Tensors(), kInputs));
  const auto as_lists = [f = std::move(f), kInputs](const detail::Tensors& inputs) mutable {
    return detail::to_list(detail::call(f, inputs, kInputs));
  };
  return detail::from_list<Result>(detail::recomputed(as_lists, {torch::Tensor(tensors)...}));
}

}  // namespace trireme
