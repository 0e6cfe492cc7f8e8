// Ctrl-C and SIGTERM while a model is fitted: noted, so that the fit can save before it ends as they say.
//
//   Interruption interruption({.enabled = true});
//   if (interruption.signal() != 0) { save(); interruption.obey(number); }
//
// A signal that the program handles or ignores by itself is left to it. A second Ctrl-C ends the process at once.
// Thread rule: that of a fit.
#pragma once

#include <optional>

#include "trireme/core/preemption.h"

namespace trireme::train {

struct InterruptionOptions {
  bool enabled = true;  ///< false: signals do what they always do
};

class Interruption {
 public:
  explicit Interruption(const InterruptionOptions& options);

  /// The one that came; 0: none.
  int signal() const { return notice_ ? notice_->signal() : 0; }
  /// As if it had never been noted: ends the process.
  void obey(int signal);

 private:
  std::optional<PreemptionNotice> notice_;
};

}  // namespace trireme::train
