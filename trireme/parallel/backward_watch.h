// A call before every backward() of the process, and one after it.
//
// libtorch has no hook for "a backward begins": a model can only be watched through the gradient accumulators of its
// parameters, and those change under its feet (Module::to(dtype), requires_grad_(), a layer registered later). So the
// autograd engine itself is replaced by one that calls its listeners first; it is the one place that every backward
// passes, whichever way the model was called. It also records the phase for the launcher (watch/report.h).
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace trireme::parallel {

class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// Called on the thread that called backward(), before the engine looks at the graph. Not for a backward inside
  /// another one (recompute) and not for torch::autograd::grad(), which accumulates nothing.
  virtual void before_backward() = 0;
  /// Called on that thread when such a backward has ended well.
  virtual void after_backward() {}
  /// Called before torch::autograd::grad() of these, outside of a backward.
  virtual void before_grad(const torch::autograd::edge_list& /*inputs*/) {}
  /// Called when such a backward ends by an exception, which goes on unless this throws a better one.
  virtual void backward_failed() {}
};

/// Calls the listener for as long as it lives. Thread-safe.
void listen_to_backwards(const std::shared_ptr<BackwardListener>& listener);

/// How many such backwards of this process have begun.
int64_t backwards_begun();

/// Called by a listener: no other thread has run a backward since this one began, so no other backward writes gradients now.
bool is_only_backward();

/// Called inside a backward: `end` runs when all its gradients are there. When an exception ends the backward, or `end`
/// itself throws, `failed` runs instead or after it.
void at_end_of_backward(std::function<void()> end, std::function<void()> failed);

}  // namespace trireme::parallel
