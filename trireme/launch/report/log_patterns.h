// What the last lines of a worker's log say about its end: the messages of PyTorch, Paddle, NCCL, Python and the C++
// runtime. Pure; used by diagnose().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/report/diagnosis.h"

namespace trireme::launch {

/// The most telling message of the lines, or nothing. Its words do not tell the exit status.
std::optional<Diagnosis> find_in_log(const std::vector<std::string>& lines);

}  // namespace trireme::launch
