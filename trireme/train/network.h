// A network without its type: the module that holds the parameters, and how to call its forward().
//
//   train::Network one = models::lenet(10);                   // forward(x) -> a tensor
//   train::Network two = Siamese(128);                        // forward(left, right) -> a std::tuple of two tensors
//   train::Tensors outputs = two.forward({left, right});
//
// forward() takes one to eight tensors, or a list of them (std::vector<torch::Tensor>). It returns a tensor, or a
// std::tuple, std::pair, std::array or std::vector of such results: their tensors are the outputs, in that order.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/core/cxx20.h"

namespace trireme::train {

using Tensors = std::vector<torch::Tensor>;
using Forward = std::function<Tensors(const Tensors&)>;

/// How many tensors a forward() takes.
struct InputCount {
  size_t least = 1;
  size_t most = 1;
  bool operator==(const InputCount&) const = default;
};

namespace detail {

constexpr size_t kMaxInputs = 8;

/// "2", or "1 to 3".
std::string count_text(InputCount count);
/// UsageError with both numbers.
[[noreturn]] void refuse_input_count(size_t given, InputCount taken);

template <typename T>
struct HoldsTensors : std::is_convertible<T, torch::Tensor> {};
template <typename... T>
struct HoldsTensors<std::tuple<T...>> : std::conjunction<HoldsTensors<T>...> {};
template <typename A, typename B>
struct HoldsTensors<std::pair<A, B>> : std::conjunction<HoldsTensors<A>, HoldsTensors<B>> {};
template <typename T, size_t N>
struct HoldsTensors<std::array<T, N>> : HoldsTensors<T> {};
template <typename T>
struct HoldsTensors<std::vector<T>> : HoldsTensors<T> {};

template <typename T>
void collect(const T& result, Tensors& all) {
  if constexpr (std::convertible_to<T, torch::Tensor>)
    all.push_back(result);
  else if constexpr (requires { std::tuple_size<T>::value; })
    std::apply([&](const auto&... one) { (collect(one, all), ...); }, result);
  else
    for (const auto& one : result) collect(one, all);
}

template <typename T>
Tensors tensors_of(const T& result) {
  Tensors all;
  collect(result, all);
  return all;
}

template <typename Net, typename... Args>
concept Callable = requires(Net& net, Args&&... args) {
  requires HoldsTensors<std::remove_cvref_t<decltype(net.forward(std::forward<Args>(args)...))>>::value;
};

struct Unrelated {};
/// A template such as Sequential's: its declaration says nothing about what it takes. One tensor, then.
template <typename Net>
constexpr bool kTakesAnything = requires(Net& net, Unrelated value) { net.forward(value); };
template <typename Net>
constexpr bool kTakesList = !kTakesAnything<Net> && Callable<Net, const Tensors&>;

template <size_t>
using ConstTensor = const torch::Tensor&;
template <typename Net, size_t... I>
constexpr bool takes(std::index_sequence<I...> /*count*/) {
  return Callable<Net, ConstTensor<I>...>;
}
template <typename Net, size_t N>
constexpr bool kTakes = !kTakesList<Net> && (N == 1 || !kTakesAnything<Net>)&&takes<Net>(std::make_index_sequence<N>());

template <typename Net, size_t... I>
constexpr InputCount input_count(std::index_sequence<I...> /*counts*/) {
  if (kTakesList<Net>) return {1, std::numeric_limits<size_t>::max()};
  InputCount count{0, 0};
  const auto note = [&](size_t n, bool taken) {
    if (taken && count.least == 0) count.least = n;
    if (taken) count.most = n;
  };
  (note(I + 1, kTakes<Net, I + 1>), ...);
  return count;
}
/// {0, 0}: its forward() cannot be called with tensors.
template <typename Net>
constexpr InputCount kInputCount = input_count<Net>(std::make_index_sequence<kMaxInputs>());

template <size_t N = 1, typename Net>
Tensors call(Net& net, const Tensors& inputs) {
  if constexpr (kTakesList<Net>) return tensors_of(net.forward(inputs));
  if constexpr (N <= kMaxInputs) {
    if constexpr (kTakes<Net, N>)
      if (inputs.size() == N)
        return [&]<size_t... I>(std::index_sequence<I...> /*places*/) {
          return tensors_of(net.forward(inputs[I]...));
        }(std::make_index_sequence<N>());
    return call<N + 1>(net, inputs);
  }
  refuse_input_count(inputs.size(), kInputCount<Net>);
}

}  // namespace detail

/// A module whose forward() takes and returns tensors.
template <typename Net>
concept TakesTensors = detail::kInputCount<Net> != InputCount{0, 0};

/// A small value that keeps the module alive.
struct Network {
  std::shared_ptr<torch::nn::Module> module;
  Forward forward;
  InputCount inputs;

  /// A std::shared_ptr of a module, or a holder as TORCH_MODULE makes them.
  template <TakesTensors Net>
  Network(std::shared_ptr<Net> net)  // NOLINT(google-explicit-constructor)
      : module(net), inputs(detail::kInputCount<Net>) {
    if (net) forward = [net](const Tensors& x) { return detail::call(*net, x); };
  }
  template <TakesTensors Net>
  Network(const torch::nn::ModuleHolder<Net>& net)  // NOLINT(google-explicit-constructor)
      : Network(net.ptr()) {}
  /// A module itself is refused by the compiler.
  template <std::derived_from<torch::nn::Module> Net>
  Network(const Net& /*net*/) {  // NOLINT(google-explicit-constructor)
    static_assert(sizeof(Net) == 0,
                  "training needs a pointer to the module: Model(std::make_shared<Net>(...)), or a holder that "
                  "TORCH_MODULE(Net) makes");
  }
};

}  // namespace trireme::train
