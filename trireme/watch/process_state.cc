#include "trireme/watch/process_state.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>

#include "trireme/core/text.h"

namespace trireme::watch {
namespace {

// getline() because it does not throw when the process ends between the opening and the reading (ESRCH).
std::string read_proc(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name));
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

ProcessState state_of(char letter) {
  switch (letter) {
    case 'R':
      return ProcessState::running;
    case 'S':
    case 'I':
      return ProcessState::sleeping;
    case 'D':
      return ProcessState::disk;
    case 'T':
      return ProcessState::stopped;
    case 't':
      return ProcessState::traced;
    default:
      return ProcessState::unknown;  // Z and X: the launcher hears of ends in another way, and knows the exit code
  }
}

}  // namespace

const char* words_of(ProcessState state) {
  switch (state) {
    case ProcessState::running:
      return "running";
    case ProcessState::sleeping:
      return "sleeping";
    case ProcessState::disk:
      return "waiting for a disk";
    case ProcessState::stopped:
      return "stopped";
    case ProcessState::traced:
      return "in a debugger";
    case ProcessState::exited:
      return "ended";
    case ProcessState::dead:
      return "dead";
    case ProcessState::unknown:
      break;
  }
  return "";
}

ProcessState parse_process_state(std::string_view stat, std::string_view status) {
  // The program's name is in parentheses and may contain any byte, so the letter follows the last one.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return ProcessState::unknown;
  constexpr std::string_view kTracer = "TracerPid:";
  const size_t tracer = status.find(kTracer);
  if (tracer != std::string_view::npos) {
    const std::string_view rest = status.substr(tracer + kTracer.size());
    if (trim(rest.substr(0, rest.find('\n'))) != "0") return ProcessState::traced;
  }
  return state_of(stat[name_end + 2]);
}

ProcessState read_process_state(int pid) {
  return parse_process_state(read_proc(pid, "stat"), read_proc(pid, "status"));
}

bool descends_from(int pid, int ancestor) {
  constexpr int kMaxGenerations = 64;
  for (int generation = 0; pid > 1 && generation < kMaxGenerations; ++generation) {
    if (pid == ancestor) return true;
    const std::string stat = read_proc(pid, "stat");  // "12 (name) S 11 …": the parent follows the letter
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 4 >= stat.size()) return false;
    const std::string rest = stat.substr(name_end + 4);
    pid = static_cast<int>(parse_int(rest.substr(0, rest.find(' ')), 0, std::numeric_limits<int>::max()).value_or(0));
  }
  return false;
}

std::string read_wait_channel(int pid) {
  const std::string channel = read_proc(pid, "wchan");
  return channel == "0" ? "" : printable(channel);
}

}  // namespace trireme::watch
