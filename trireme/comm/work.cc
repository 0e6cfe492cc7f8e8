#include "trireme/comm/work.h"

#include <torch/torch.h>

#include "trireme/comm/work_state.h"
#include "trireme/core/clock.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

// wait_for_work(work) waits for the innermost; what then() added follows from the inside out.
template <typename Wait>
void finish(Work::State& state, const Wait& wait_for_work) {
  if (state.before) finish(*state.before, wait_for_work);
  if (state.work) wait_for_work(*state.work);
  if (state.after) std::call_once(state.once, state.after);
}

}  // namespace

Work make_work(c10::intrusive_ptr<c10d::Work> work) {
  auto state = std::make_shared<Work::State>();
  state->work = std::move(work);
  return Work(std::move(state));
}

void Work::wait() const {
  if (state_) finish(*state_, [](c10d::Work& work) { work.wait(); });
}

void Work::wait(Deadline deadline) const {
  if (!state_) return;
  const Clock::time_point begun = Clock::now();
  finish(*state_, [&](c10d::Work& work) {
    const Millis left = std::max(deadline.left(), Millis(1));  // 0 would mean for ever
    try {
      work.wait(deadline.is_never() ? Millis(0) : left);
    } catch (const c10::Error&) {
      if (work.isCompleted()) throw;
      throw PeerError("the operation has not ended after {} ms; it goes on, and may be waited for again",
                      std::chrono::duration_cast<Millis>(Clock::now() - begun).count());
    }
  });
}

bool Work::done() const {
  for (const State* state = state_.get(); state; state = state->before.get())
    if (state->work && !state->work->isCompleted()) return false;
  return true;
}

Work Work::then(std::function<void()> f) const {
  auto next = std::make_shared<State>();
  next->before = state_;
  next->after = std::move(f);
  return Work(std::move(next));
}

}  // namespace trireme
