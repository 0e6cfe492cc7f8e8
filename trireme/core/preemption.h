// Notes the signals by which a batch system says that it wants the machine back.
//
//   PreemptionNotice notice({SIGTERM, SIGUSR1});
//   for (…) if (notice.received()) { save(); return; }
//
// While one lives the signals no longer end the process; a handler that was there before is still called, a signal that
// was ignored stays ignored. A second SIGINT (Ctrl-C again) or SIGTERM ends the process at once: what the program waits
// for, such as a read from a dead file server, may never come. Within 100 ms of the first SIGINT and 3 s of the first
// SIGTERM it counts as the same request, sent twice. The last one to go puts back what was before, unless another
// handler has come on top.
// Any thread; the handler itself hardly does more than count. No torch here.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

class PreemptionNotice {
 public:
  /// Throws UsageError for a number that is not a signal or cannot be caught.
  explicit PreemptionNotice(const std::vector<int>& signals);
  ~PreemptionNotice();
  PreemptionNotice(const PreemptionNotice&) = delete;
  PreemptionNotice& operator=(const PreemptionNotice&) = delete;

  /// Whether one of the signals has come since construction.
  bool received() const { return signal() != 0; }
  /// The first of them that has; 0: none.
  int signal() const;

 private:
  std::vector<int> signals_;
  std::vector<uint64_t> before_;  // how often each had come
};

}  // namespace trireme
