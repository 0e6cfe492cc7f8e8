#include "trireme/parallel/backward_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <vector>

#include "trireme/core/thread_annotations.h"
#include "trireme/watch/report.h"

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
  void after_backward() {
    for (const auto& listener : living()) listener->after_backward();
  }
  void backward_failed() {
    for (const auto& listener : living()) listener->backward_failed();
  }
  void before_grad(const edge_list& inputs) {
    for (const auto& listener : living()) listener->before_grad(inputs);
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

// An outermost backward, on the thread that called it.
class ThisBackward {
 public:
  ThisBackward() : is_first_(running_++ == 0), number_(++begun_) { current = this; }
  ~ThisBackward() {
    current = nullptr;
    --running_;
  }
  ThisBackward(const ThisBackward&) = delete;
  ThisBackward& operator=(const ThisBackward&) = delete;

  bool is_only() const { return is_first_ && begun_ == number_; }

  static int64_t begun() { return begun_; }
  static inline thread_local const ThisBackward* current = nullptr;

 private:
  static inline std::atomic<int> running_ = 0;
  static inline std::atomic<int64_t> begun_ = 0;
  const bool is_first_;
  const int64_t number_;
};

class WatchedEngine final : public torch::autograd::Engine {
 public:
  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph, bool create_graph,
                        bool accumulate_grad, const edge_list& outputs) override {
    const bool outermost = torch::autograd::get_current_graph_task_id() == -1;
    if (!accumulate_grad && outermost) listeners().before_grad(outputs);
    if (!accumulate_grad || !outermost)
      return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    const watch::PhaseScope phase(watch::Phase::backward);
    const ThisBackward backward;
    listeners().before_backward();
    try {
      variable_list gradients = Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
      listeners().after_backward();
      return gradients;
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

int64_t backwards_begun() {
  return ThisBackward::begun();
}

bool is_only_backward() {
  return ThisBackward::current != nullptr && ThisBackward::current->is_only();
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
