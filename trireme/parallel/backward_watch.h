// A call before every backward() of the process.
//
// libtorch has no hook for "a backward begins": a model can only be watched through the gradient accumulators of its
// parameters, and those change under its feet (Module::to(dtype), requires_grad_(), a layer registered later). So the
// autograd engine itself is replaced by one that calls its listeners first; it is the one place that every backward
// passes, whichever way the model was called.
#pragma once

#include <functional>
#include <memory>

namespace trireme::parallel {

class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  /// Called on the thread that called backward(), before the engine looks at the graph. Not for a backward inside
  /// another one (recompute) and not for torch::autograd::grad(), which accumulates nothing.
  virtual void before_backward() = 0;
  /// Called when such a backward ends by an exception, which goes on unless this throws a better one.
  virtual void backward_failed() {}
};

/// Calls the listener for as long as it lives. Thread-safe.
void listen_to_backwards(const std::shared_ptr<BackwardListener>& listener);

/// Called inside a backward: `end` runs when all its gradients are there. When an exception ends the backward, or `end`
/// itself throws, `failed` runs instead or after it.
void at_end_of_backward(std::function<void()> end, std::function<void()> failed);

}  // namespace trireme::parallel
