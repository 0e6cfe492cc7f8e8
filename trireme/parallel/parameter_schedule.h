// At which averaged backwards the ranks of a DataParallel compare their parameters, and what an error says about them.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "trireme/comm/group.h"

namespace trireme::parallel {

class ParameterSchedule {
 public:
  /// An averaged backward, as all its ranks know it.
  struct Backward {
    int64_t number = 0;  ///< from 1
    bool learns = false;
    bool all_are_active = true;  ///< none has run out of data inside of join()
  };
  /// Some rank has seen that weights were changed since the averaged backward before.
  struct Changes {
    bool after_local = false;  ///< after a backward under no_sync()
    bool by_hand = false;      ///< between two calls of torch::autograd::grad()
  };

  /// `interval`: DataParallelOptions::parameter_check_interval. `module` must outlive this.
  ParameterSchedule(const torch::nn::Module& module, const Group& group, int interval)
      : module_(module), group_(group), interval_(interval) {}

  /// False: the ranks may differ for a while, as in local SGD, and the program sees to it.
  bool compares() const { return interval_ > 0; }
  /// join() was left, after so many backwards.
  void joined(int64_t backwards, bool with_optimizer);

  /// `changed_after_local`: what this rank has seen, for the message.
  void begin_backward(bool changed_after_local) { changes_ = {.after_local = changed_after_local}; }
  /// Called by every rank when the backward begins; compares if it is due.
  void check(const Backward& backward);
  /// Called by every rank when it ends; compares if there are changes.
  void check_changed(const Backward& backward, const Changes& changes);

 private:
  std::string describe(const Backward& backward) const;
  void check_replicas(const std::string& when) const;

  const torch::nn::Module& module_;
  const Group group_;
  const int interval_;
  int64_t joined_at_ = 0;       // the number of backwards when join() was last left
  bool has_own_steps_ = false;  // join() was left by ranks that have made different numbers of steps
  Changes changes_;             // before the backward under way
};

}  // namespace trireme::parallel
