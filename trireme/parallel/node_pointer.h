// Nodes of libtorch's graph, held as its version holds them: by std::shared_ptr, and by c10::intrusive_ptr in newer ones
// (seen in 2.15).
//
//   NodePointer node = make_node<MyNode>(arguments);
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace trireme::parallel {

using NodePointer = decltype(torch::autograd::Edge::function);

inline constexpr bool kSharedNodes = std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>;

template <typename N>
using PointerTo = std::conditional_t<kSharedNodes, std::shared_ptr<N>, c10::intrusive_ptr<N>>;

/// A long chain of nodes is deleted without recursion.
template <typename N, typename... Args>
PointerTo<N> make_node(Args&&... args) {
  if constexpr (kSharedNodes)  // deleteNode() is torch::autograd's, in the versions that need it
    return std::shared_ptr<N>(new N(std::forward<Args>(args)...), [](N* node) { deleteNode(node); });
  else
    return c10::make_intrusive<N>(std::forward<Args>(args)...);
}

}  // namespace trireme::parallel
