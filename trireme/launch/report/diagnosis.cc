#include "trireme/launch/report/diagnosis.h"

#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <cerrno>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/report/log_patterns.h"

namespace trireme::launch {
namespace {

struct Signal {
  int number;
  const char* name;
  const char* words;
};

constexpr std::array kSignals = {
    Signal{SIGHUP, "SIGHUP", "hangup"},
    Signal{SIGINT, "SIGINT", "interrupt"},
    Signal{SIGQUIT, "SIGQUIT", "quit"},
    Signal{SIGILL, "SIGILL", "illegal instruction"},
    Signal{SIGTRAP, "SIGTRAP", "trace or breakpoint trap"},
    Signal{SIGABRT, "SIGABRT", "aborted"},
    Signal{SIGBUS, "SIGBUS", "bus error"},
    Signal{SIGFPE, "SIGFPE", "arithmetic error"},
    Signal{SIGKILL, "SIGKILL", "killed"},
    Signal{SIGUSR1, "SIGUSR1", "user signal 1"},
    Signal{SIGSEGV, "SIGSEGV", "segmentation fault"},
    Signal{SIGUSR2, "SIGUSR2", "user signal 2"},
    Signal{SIGPIPE, "SIGPIPE", "broken pipe"},
    Signal{SIGALRM, "SIGALRM", "alarm clock"},
    Signal{SIGTERM, "SIGTERM", "terminated"},
    Signal{SIGSTKFLT, "SIGSTKFLT", "stack fault"},
    Signal{SIGCHLD, "SIGCHLD", "child status"},
    Signal{SIGCONT, "SIGCONT", "continued"},
    Signal{SIGSTOP, "SIGSTOP", "stopped"},
    Signal{SIGTSTP, "SIGTSTP", "stopped from the terminal"},
    Signal{SIGTTIN, "SIGTTIN", "terminal input in the background"},
    Signal{SIGTTOU, "SIGTTOU", "terminal output in the background"},
    Signal{SIGURG, "SIGURG", "urgent data"},
    Signal{SIGXCPU, "SIGXCPU", "CPU time limit exceeded"},
    Signal{SIGXFSZ, "SIGXFSZ", "file size limit exceeded"},
    Signal{SIGVTALRM, "SIGVTALRM", "virtual timer expired"},
    Signal{SIGPROF, "SIGPROF", "profiling timer expired"},
    Signal{SIGWINCH, "SIGWINCH", "window size changed"},
    Signal{SIGIO, "SIGIO", "input or output possible"},
    Signal{SIGPWR, "SIGPWR", "power failure"},
    Signal{SIGSYS, "SIGSYS", "bad system call"},
};

const Signal* find_signal(int number) {
  for (const Signal& signal : kSignals)
    if (signal.number == number) return &signal;
  return nullptr;
}

std::string signal_advice(int signal) {
  switch (signal) {
    case SIGILL:
      return "The CPU refused an instruction. On a CPU that announces AMX but cannot run it, start with "
             "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 (launch sets it unless you have set the variable yourself); else "
             "the program was built for a newer CPU (-march) than this host's.";
    case SIGBUS:
      return "Often shared memory is full: look at `df -h /dev/shm` and enlarge it (docker run --shm-size=8g, or "
             "--ipc=host). Else a mapped file became shorter, or its disk is full.";
    case SIGSEGV:
      return "Run this rank in a debugger: --wrap RANK:\"gdb --args\", or use its core file.";
    case SIGABRT:
      return "The program gave up by itself: its last lines say why.";
    case SIGFPE:
      return "An integer was divided by zero or overflowed. Run this rank in a debugger: --wrap RANK:\"gdb --args\".";
    case SIGKILL:
      return "Someone sent SIGKILL: the kernel short of memory (dmesg | grep -i oom), the batch system at a limit, or "
             "a person.";
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return "The signal came from outside of the job: a person, a script or the batch system.";
    case SIGXCPU:
      return "Raise the limit of CPU time (ulimit -t, or the batch system's).";
    case SIGXFSZ:
      return "Raise the limit of file sizes (ulimit -f).";
    case SIGPIPE:
      return "It wrote to a pipe or socket whose other end is gone.";
    case SIGSYS:
      return "A sandbox (seccomp, container) forbids a system call that the program needs.";
    default:
      return "";
  }
}

Diagnosis exec_failed(const Ending& ending) {
  const bool missing = ending.exec_errno == ENOENT;
  const char* advice = missing
                           ? "Check the program's path on this host; for a script, the interpreter in its first line."
                           : "Check that it is an executable for this machine (file, chmod +x).";
  if (ending.exec_errno == E2BIG) advice = "The arguments and the environment together are too long for the kernel.";
  return {.cause = "exec_failed", .words = ending_words(ending), .advice = advice};
}

Diagnosis killed_for_memory(const Ending& ending) {
  return {.cause = "out_of_memory",
          .words = ending_words(ending),
          .advice =
              "Use fewer processes per node, a smaller batch or fewer loader threads, or raise the memory limit "
              "of the container or batch job."};
}

// A signal other than SIGABRT tells its own story; abort() is how programs end after they have said why.
bool log_may_explain(const Ending& ending) {
  return ending.exited || ending.signal == SIGABRT;
}

Diagnosis explained(const Ending& ending, const LogFinding& finding) {
  return {.cause = finding.cause,
          .words = fmt::format("{}: {}", ending_words(ending), finding.words),
          .advice = finding.advice,
          .evidence = finding.evidence,
          .victim = finding.victim};
}

// Our own exit code says so; what the log says is the detail.
Diagnosis peer_failed(const Ending& ending, const std::optional<LogFinding>& finding) {
  return {.cause = "peer",
          .words = fmt::format("{}: {}", ending_words(ending), finding ? finding->words : "another rank failed it"),
          .advice = "The real culprit may be another rank: read the other ranks' logs too. Starting again may cure it.",
          .evidence = finding ? finding->evidence : std::vector<std::string>(),
          .victim = true};
}

// 139 of a shell script means that its command died of signal 11.
std::string shell_words(int code) {
  const Signal* signal = code > 128 ? find_signal(code - 128) : nullptr;
  return signal ? fmt::format(" (as a shell reports signal {}, {})", signal->number, signal->words) : "";
}

Diagnosis by_exit_code(const Ending& ending) {
  const std::string words = ending_words(ending);
  switch (ending.code) {
    case exit_code::kSystem:
      return {
          .cause = "system", .words = words + ": the operating system refused a call", .advice = "See its last lines."};
    case exit_code::kUsage:
      return {.cause = "usage", .words = words, .advice = "Usually wrong options or settings: see its last lines."};
    case exit_code::kNotExecutable:
    case exit_code::kNotFound:
      return {.cause = "exit",
              .words = words,
              .advice = "Usually a command in a script that is missing or not executable."};
    default:
      return {.cause = "exit", .words = words + shell_words(ending.code), .advice = ""};
  }
}

}  // namespace

Diagnosis diagnose(const Ending& ending, const std::vector<std::string>& last_lines) {
  if (ending.success()) return {.cause = "success", .words = ending_words(ending)};
  if (ending.exec_errno != 0) return exec_failed(ending);
  if (ending.out_of_memory_kill) return killed_for_memory(ending);
  const auto finding = log_may_explain(ending) ? find_in_log(last_lines) : std::nullopt;
  if (ending.exited && ending.code == exit_code::kPeer) return peer_failed(ending, finding);
  if (finding) return explained(ending, *finding);
  if (ending.exited) return by_exit_code(ending);
  return {.cause = "signal", .words = ending_words(ending), .advice = signal_advice(ending.signal)};
}

int exit_code_of(const Ending& ending) {
  if (ending.exec_errno != 0) return ending.exec_errno == ENOENT ? exit_code::kNotFound : exit_code::kNotExecutable;
  return ending.exited ? ending.code : 128 + ending.signal;
}

std::string ending_words(const Ending& ending) {
  if (ending.exec_errno != 0) return "could not be started: " + errno_text(ending.exec_errno);
  if (ending.out_of_memory_kill)
    return fmt::format("killed by signal {}; the kernel killed it because memory ran out", ending.signal);
  if (ending.exited) return fmt::format("exit {}", ending.code);
  return fmt::format("killed by signal {}, {}{}", ending.signal, signal_words(ending.signal),
                     ending.core_dumped ? " (core dumped)" : "");
}

std::string signal_name(int number) {
  const Signal* signal = find_signal(number);
  return signal ? signal->name : fmt::format("signal {}", number);
}

std::string signal_words(int number) {
  if (const Signal* signal = find_signal(number)) return signal->words;
  return number >= SIGRTMIN && number <= SIGRTMAX ? "real-time signal" : "unknown signal";
}

}  // namespace trireme::launch
