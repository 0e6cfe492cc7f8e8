// The guard: a small process between the launcher and each worker that lets nothing escape.
//
// Words. The *keeper* is the process that starts workers (the launcher, or a program that calls spawn). For each
// *worker* it forks one *guard*, and the guard forks and executes the worker. *Leftovers* are processes the worker has
// started and that outlive it; the guard is their subreaper, so that when their parents die they become the guard's own
// children, even when they have moved to another session.
//
//   keeper ──control socket── guard ── worker ── leftovers …
//
// What the guard promises:
//   - It tells the keeper, over the control socket, that the worker started, failed to execute, or ended, and how.
//   - An order from the keeper (a signal) reaches the worker's whole process group and every adopted leftover.
//   - After the worker has ended, leftovers get SIGTERM, and SIGKILL after the linger time. That is a second; after a
//     signal from the keeper it is the command's grace, because a leftover may be the program that a shell has started,
//     and be about to save.
//   - When the keeper is gone (the socket closes, however it died), the same holds for the worker.
//   - When the guard itself is killed, the kernel kills the worker (PR_SET_PDEATHSIG).
//   - It ends when nothing it guards is left; the keeper sees the socket close.
//
// The guard is forked, not executed, so that it needs no program file to be found: spawn() works in any user's program.
// Between fork and exec, and in the guard itself, only async-signal-safe calls are made: the keeper may have threads.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "trireme/core/fd.h"

namespace trireme::proc {

/// What the guard tells the keeper. One message = one packet.
struct GuardReport {
  enum class Kind : int { started, exec_failed, ended };
  Kind kind;
  pid_t pid;                // the worker's
  int value;                // exec_failed: errno; ended: the wait status
  int64_t monotonic_nanos;  // ended: when the guard saw it
};

/// What the keeper asks of the guard: send `signal` to everything it guards. SIGKILL is final.
struct GuardOrder {
  int signal;
};

/// Everything the guard needs, prepared before the fork because afterwards nothing may be allocated.
struct GuardedCommand {
  const char* path;  // the program file
  char* const* arguments;
  char* const* environment;
  const char* directory;              // or null
  int standard_fds[3];                // become 0, 1, 2
  const std::vector<int>* inherited;  // stay open, under the same numbers (3 and above)
  const std::vector<int>* cpus;       // pinned to these when not empty
  int64_t grace_millis;               // see above
  bool foreground;                    // the worker becomes the terminal's foreground process group
  size_t open_files;                  // the worker's soft limit; 0: the keeper's
};

/// Forks the guard. Returns its pid; `control` is its end of a SOCK_SEQPACKET pair, which stays open in the keeper and
/// is closed by the caller. Throws SystemError when fork fails.
pid_t start_guard(const GuardedCommand& command, int control);

}  // namespace trireme::proc
