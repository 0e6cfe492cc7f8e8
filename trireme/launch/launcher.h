// `trireme launch`: from a request to an exit code.
#pragma once

#include "trireme/core/log.h"
#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// While one exists, log messages look like the launcher's own: "trireme: warning: …" on standard error.
class PlainLog {
 public:
  PlainLog();
  ~PlainLog();
  PlainLog(const PlainLog&) = delete;
  PlainLog& operator=(const PlainLog&) = delete;

 private:
  LogSink before_;
};

/// Runs the job on this node (and, with --ssh, on all of them) and returns the exit code: 0, the culprit's, 128 +
/// signal when interrupted. Throws Error for what is wrong before any worker has started.
int run_launch(Request request);

}  // namespace trireme::launch
