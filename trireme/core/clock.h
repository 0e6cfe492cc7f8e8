// The library's clock, in short. Public headers spell out std::chrono's names instead.
#pragma once

#include <chrono>

namespace trireme {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

}  // namespace trireme
