#include "trireme/store/rules.h"

#include "trireme/core/text.h"
#include "trireme/store/store.h"

namespace trireme::store::rules {

std::string shown(std::string_view key) {
  constexpr size_t kMaxShownKey = 80;
  return key.size() <= kMaxShownKey ? printable(key) : printable(key.substr(0, kMaxShownKey)) + "...";
}

void check_key(std::string_view key) {
  if (key.empty() || key.size() > Store::kMaxKey)
    throw UsageError("[store] a key has 1 to {} bytes, \"{}\" has {}; choose another name", Store::kMaxKey, shown(key),
                     key.size());
}

void check_value(std::string_view key, std::string_view value) {
  if (value.size() > Store::kMaxValue)
    throw UsageError("[store] the value of \"{}\" has {} bytes, the limit is {}; split it, or use a file", shown(key),
                     value.size(), Store::kMaxValue);
}

int64_t sum(std::string_view key, const std::optional<std::string>& value, int64_t amount) {
  const auto number = value ? parse_int(*value, INT64_MIN, INT64_MAX) : 0;
  if (!number)
    throw UsageError("[store] cannot add {} to \"{}\": it holds \"{}\", which is not a number", amount, shown(key),
                     shown(*value));
  int64_t result = 0;
  if (__builtin_add_overflow(*number, amount, &result))
    throw UsageError("[store] cannot add {} to \"{}\": it holds {}, and the sum does not fit 64 bits", amount,
                     shown(key), *number);
  return result;
}

bool matches(const std::optional<std::string>& value, std::string_view expected) {
  return value ? *value == expected : expected.empty();
}

PeerError not_set(std::string_view key, Clock::time_point since) {
  const std::chrono::duration<double> waited = Clock::now() - since;
  return PeerError("[store] no process has set \"{}\" within {:.1f} s; look at the one that should have", shown(key),
                   waited.count());
}

}  // namespace trireme::store::rules
