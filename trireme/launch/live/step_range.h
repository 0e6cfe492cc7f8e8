// The steps of `trireme launch --trace steps=FIRST:LAST`.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::launch {

struct StepRange {
  int64_t first = 0;  // the first one
  int64_t last = 0;   // the one after the last
  bool operator==(const StepRange&) const = default;
};

/// "steps=100:110". Throws UsageError that begins with `what`.
StepRange parse_step_range(const std::string& text, const std::string& what);

}  // namespace trireme::launch
