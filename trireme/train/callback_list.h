// The callbacks of a run, called together. Belongs to Model.
//
//   CallbackList callbacks(options.callbacks);
//   callbacks.call(&Callback::on_train_begin, run);
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/train/callback.h"
#include "trireme/train/owned.h"

namespace trireme::train {

class CallbackList {
 public:
  using Hook = void (Callback::*)(Run&);

  explicit CallbackList(std::vector<Owned<Callback>> all) : all_(std::move(all)) {}

  void call(Hook hook, Run& run) const {
    for (const Owned<Callback>& one : all_) ((*one).*hook)(run);
  }
  /// Before the others, unless one of this type is there already.
  template <typename T, typename... Args>
  void add_default(Args&&... args) {
    for (const Owned<Callback>& one : all_)
      if (dynamic_cast<const T*>(&*one) != nullptr) return;
    all_.insert(all_.begin(), T(std::forward<Args>(args)...));
  }
  /// The states of all callbacks that have one, a line each. When the lines are those of other callbacks, all start
  /// without a state, with a warning.
  std::string state_text() const;
  void load_state(const std::string& text) const;

 private:
  std::vector<Owned<Callback>> all_;
};

}  // namespace trireme::train
