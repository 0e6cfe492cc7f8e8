// What the last lines of a worker's log say about its end: the messages of PyTorch, Paddle, NCCL, Python and the C++
// runtime. Pure; used by diagnose().
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::launch {

struct LogFinding {
  std::string cause;  // as in Diagnosis
  std::string words;  // what happened, without the exit status
  std::string advice;
  std::vector<std::string> evidence;
  bool victim = false;
};

/// The most telling message of the lines, or nothing.
std::optional<LogFinding> find_in_log(const std::vector<std::string>& lines);

}  // namespace trireme::launch
