#include "trireme/launch/live/step_range.h"

#include <limits>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::launch {

StepRange parse_step_range(const std::string& text, const std::string& what) {
  constexpr std::string_view kPrefix = "steps=";
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const size_t colon = text.find(':');
  if (text.starts_with(kPrefix) && colon != std::string::npos) {
    const auto first = parse_int(text.substr(kPrefix.size(), colon - kPrefix.size()), 0, kMost);
    const auto last = parse_int(text.substr(colon + 1), 1, kMost);
    if (first && last && *first < *last) return {*first, *last};
  }
  throw UsageError("{}: must be steps=FIRST:LAST, as in steps=100:110 for the steps 100 to 109", what);
}

}  // namespace trireme::launch
