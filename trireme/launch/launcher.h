// `trireme launch`: from a request to an exit code.
#pragma once

#include "trireme/core/log.h"
#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// While one exists, log messages go to its sink.
class ScopedLogSink {
 public:
  explicit ScopedLogSink(LogSink sink) : before_(set_log_sink(std::move(sink))) {}
  ~ScopedLogSink() { set_log_sink(std::move(before_)); }
  ScopedLogSink(const ScopedLogSink&) = delete;
  ScopedLogSink& operator=(const ScopedLogSink&) = delete;

 private:
  LogSink before_;
};

/// Log messages as the launcher's own words: "trireme: warning: …" on standard error.
ScopedLogSink plain_log();

/// Runs the job on this node (and, with --ssh, on all of them) and returns the exit code: 0, the culprit's, 128 +
/// signal when interrupted. Throws Error for what is wrong before any worker has started.
int run_launch(Request request);

}  // namespace trireme::launch
