// Why a worker ended, in words, from its exit status and the last lines it wrote. Pure.
//
//   Diagnosis diagnosis = diagnose({.exited = false, .signal = SIGSEGV, .core_dumped = true}, last_lines);
//   diagnosis.words   // "killed by signal 11, segmentation fault (core dumped)"
#pragma once

#include <string>
#include <vector>

namespace trireme::launch {

/// How a process ended, as the kernel tells it. The default is a success.
struct Ending {
  bool exited = true;  // else it was killed by `signal`
  int code = 0;        // of exit(2)
  int signal = 0;
  bool core_dumped = false;
  bool out_of_memory_kill = false;  // the kernel's memory killer took it
  int exec_errno = 0;               // not 0: the program could not even be started
  bool operator==(const Ending&) const = default;

  bool success() const { return exited && code == 0 && exec_errno == 0; }
};

struct Diagnosis {
  // For machines: success, exit, signal, out_of_memory, cuda_out_of_memory, nccl, port_in_use, disk_full, import_error,
  // missing_library, python_error, cpp_exception, usage, system, peer, exec_failed.
  std::string cause;
  std::string words;                       // for people, one line
  std::string advice = {};                 // the next step; may be empty
  std::vector<std::string> evidence = {};  // lines that prove it and may be far up in the log (NCCL's warnings)
  bool victim = false;                     // it says itself that another rank failed first
};

/// Who started the worker, and so reads the advice: an option of `trireme launch` is of no use to a caller of spawn().
enum class Starter { launch, spawn };

/// `last_lines` are the end of the worker's output, oldest first; the more the better.
Diagnosis diagnose(const Ending& ending, const std::vector<std::string>& last_lines, Starter starter = Starter::launch);

/// What a shell would report: the code, 128 + signal, 126 or 127 for a program that cannot be started.
int exit_code_of(const Ending& ending);
/// "exit 7", "killed by signal 11, segmentation fault (core dumped)".
std::string ending_words(const Ending& ending);
/// 11 -> "SIGSEGV", and "segmentation fault".
std::string signal_name(int signal);
std::string signal_words(int signal);

}  // namespace trireme::launch
