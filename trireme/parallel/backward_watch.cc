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
  void backward_failed() {
    for (const auto& listener : living()) listener->backward_failed();
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
    if (!accumulate_grad || !outermost)
      return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    listeners().before_backward();
    try {
      return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    } catch (...) {
      listeners().backward_failed();
      throw;
    }
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

void at_end_of_backward(std::function<void()> end, std::function<void()> failed) {
  struct Outcome {
    explicit Outcome(std::function<void()> f) : failed(std::move(f)) {}
    ~Outcome() {
      if (!ended) failed();
    }
    Outcome(const Outcome&) = delete;
    Outcome& operator=(const Outcome&) = delete;
    const std::function<void()> failed;
    bool ended = false;
  };
  const auto outcome = std::make_shared<Outcome>(std::move(failed));
  torch::autograd::Engine::get_default_engine().queue_callback([end = std::move(end), outcome] {
    end();
    outcome->ended = true;
  });
}

}  // namespace trireme::parallel
