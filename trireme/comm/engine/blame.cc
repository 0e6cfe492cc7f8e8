#include "trireme/comm/engine/blame.h"

#include "trireme/core/text.h"

namespace trireme::comm {

std::string encode(const Blame& blame) {
  return fmt::format("{} {}", blame.rank.value_or(-1), blame.reason);
}

Blame decode_blame(std::string_view text) {
  const size_t space = text.find(' ');
  const auto rank = parse_int(text.substr(0, space), -1, INT32_MAX);
  if (space == std::string_view::npos || !rank) return {.reason = std::string(text)};
  return {.rank = *rank < 0 ? std::nullopt : std::optional(static_cast<int>(*rank)),
          .reason = std::string(text.substr(space + 1))};
}

}  // namespace trireme::comm
