#include "trireme/parallel/backward_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <vector>

#include "trireme/core/thread_annotations.h"

namespace trireme::parallel {
namespace {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

class Listeners {
 public:
  void add(const std::shared_ptr<BackwardListener>& listener) {
    const std::lock_guard lock(mutex_);
    listeners_.push_back(listener);
  }
  void before_backward() {
    for (const auto& listener : living()) listener->before_backward();
  }

 private:
  std::vector<std::shared_ptr<BackwardListener>> living() {
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [](const auto& listener) { return listener.expired(); });
    std::vector<std::shared_ptr<BackwardListener>> result;
    for (const auto& listener : listeners_)
      if (auto living = listener.lock()) result.push_back(std::move(living));
    return result;
  }

  Mutex mutex_;
  std::vector<std::weak_ptr<BackwardListener>> listeners_ TRIREME_GUARDED_BY(mutex_);
};

// Never destroyed, as a backward may run while the process ends.
Listeners& listeners() {
  static auto* const all = new Listeners;
  return *all;
}

class WatchedEngine final : public torch::autograd::Engine {
 public:
  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph, bool create_graph,
                        bool accumulate_grad, const edge_list& outputs) override {
    const bool outermost = torch::autograd::get_current_graph_task_id() == -1;
    if (accumulate_grad && outermost) listeners().before_backward();
    return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
};

torch::autograd::Engine& watched_engine() {
  static auto* const engine = new WatchedEngine;
  return *engine;
}

// Installed while the program loads: a process must use one engine from its first backward on.
[[maybe_unused]] const bool installed = (torch::autograd::set_default_engine_stub(watched_engine), true);

}  // namespace

void listen_to_backwards(const std::shared_ptr<BackwardListener>& listener) {
  listeners().add(listener);
}

}  // namespace trireme::parallel
