// An operation under way.
//
//   Work work = all_reduce_async(gradient);
//   …                                          // compute something else; do not touch `gradient`
//   work.wait();                               // throws what went wrong, on this rank or another
//
// A small value; copies mean the same operation. Dropping it does not cancel the operation.
#pragma once

#include <functional>
#include <memory>

#include "trireme/core/deadline.h"

namespace trireme {

class Work {
 public:
  struct State;

  Work() = default;  ///< of something that is finished already
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Returns when the tensors hold the result. UsageError, PeerError: see Group. For CUDA tensors of the nccl backend
  /// the current stream waits, not the caller.
  void wait() const;
  /// Gives up waiting (the operation goes on) when the deadline passes: PeerError.
  void wait(Deadline deadline) const;
  /// Whether wait() would return, or throw, at once.
  bool done() const;
  /// `f` is called by wait(), once, after the operation has succeeded: to unpack, to scale, to cast back.
  Work then(std::function<void()> f) const;

  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace trireme
