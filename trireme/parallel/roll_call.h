// What each rank tells the others when a backward begins: whether it takes part, and what it knows of its model.
//
//   roll_call.begin({.active = true, .model = fingerprint});      // 16 bytes; does not wait
//   roll_call.wait();
//   roll_call.active();
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/comm/work.h"

namespace trireme::parallel {

/// Called by every rank at the same places. Thread rule: one backward at a time.
class RollCall {
 public:
  struct Answer {
    bool active = true;
    uint64_t model = 0;    ///< what must be equal on all ranks for a backward together
    bool look = false;     ///< this rank wants all ranks' parameters to be compared: changed after local gradients
    bool by_hand = false;  ///< the same: changed between two calls of torch::autograd::grad()
  };

  explicit RollCall(const Group& group) : group_(group) {}

  void begin(const Answer& mine);
  void wait() { work_.wait(); }

  /// After wait(): the ranks that take part in the backward, in rank order.
  std::vector<int> active() const;
  /// After wait(): whether some rank wants a comparison, for each of the two reasons.
  bool look() const;
  bool by_hand() const;
  /// After wait(): a rank whose model is not like this one's, or -1.
  int with_another_model() const;

 private:
  bool any(int64_t flag) const;
  int64_t answer(int rank, int64_t field) const { return all_.data_ptr<int64_t>()[rank * 2 + field]; }

  const Group group_;
  torch::Tensor mine_;
  torch::Tensor all_;
  Work work_;
};

}  // namespace trireme::parallel
