#include "trireme/launch/report/diagnosis.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <cctype>
#include <cerrno>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/report/log_patterns.h"

namespace trireme::launch {
namespace {

std::string debugger_advice(Starter starter) {
  if (starter == Starter::launch)
    return "Run this rank in a debugger: --wrap RANK:\"gdb --args\", or use its core file.";
  return "Use its core file (ulimit -c unlimited), or attach a debugger (gdb -p) to its number in "
         "SpawnContext::pids().";
}

std::string signal_advice(int signal, Starter starter) {
  switch (signal) {
    case SIGILL:
      return "The CPU refused an instruction. On a CPU that announces AMX but cannot run it, start with "
             "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 (workers get it unless you have set the variable yourself); else "
             "the program was built for a newer CPU (-march) than this host's.";
    case SIGBUS:
      return "Often shared memory is full: look at `df -h /dev/shm` and enlarge it (docker run --shm-size=8g, or "
             "--ipc=host). Else a mapped file became shorter, or its disk is full.";
    case SIGSEGV:
      return debugger_advice(starter);
    case SIGABRT:
      return "The program gave up by itself: its last lines say why.";
    case SIGFPE:
      return "An integer was divided by zero or overflowed. " + debugger_advice(starter);
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

// Our own exit code says so; what the log says is the detail.
Diagnosis peer_failed(const Ending& ending, const std::optional<Diagnosis>& finding) {
  return {
      .cause = "peer",
      .words = fmt::format("{}: {}", ending_words(ending), finding ? finding->words : "another rank failed it"),
      .advice = "The real culprit may be another rank: read the other ranks' output too. Starting again may cure it.",
      .evidence = finding ? finding->evidence : std::vector<std::string>(),
      .victim = true};
}

// 139 of a shell script means that its command died of signal 11.
std::string shell_words(int code) {
  const bool known = code > 128 && ::sigdescr_np(code - 128) != nullptr;
  return known ? fmt::format(" (as a shell reports signal {}, {})", code - 128, signal_words(code - 128)) : "";
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

Diagnosis diagnose(const Ending& ending, const std::vector<std::string>& last_lines, Starter starter) {
  if (ending.success()) return {.cause = "success", .words = ending_words(ending)};
  if (ending.exec_errno != 0) return exec_failed(ending);
  if (ending.out_of_memory_kill) return killed_for_memory(ending);
  auto finding = log_may_explain(ending) ? find_in_log(last_lines) : std::nullopt;
  if (ending.exited && ending.code == exit_code::kPeer) return peer_failed(ending, finding);
  if (finding) {
    finding->words = fmt::format("{}: {}", ending_words(ending), finding->words);
    return *std::move(finding);
  }
  if (ending.exited) return by_exit_code(ending);
  return {.cause = "signal", .words = ending_words(ending), .advice = signal_advice(ending.signal, starter)};
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
  const char* name = ::sigabbrev_np(number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string signal_words(int number) {
  const char* known = ::sigdescr_np(number);
  if (!known) return number >= SIGRTMIN && number <= SIGRTMAX ? "real-time signal" : "unknown signal";
  std::string words = known;
  const bool acronym = !std::islower(static_cast<unsigned char>(words[1]));  // "CPU time limit exceeded"
  if (!acronym) words[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(words[0])));
  return words;
}

}  // namespace trireme::launch
