// What every store owes its callers in the same words: the limits, the arithmetic of add, the messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/core/clock.h"
#include "trireme/core/error.h"

namespace trireme::store::rules {

/// Throw UsageError unless within the limits of Store.
void check_key(std::string_view key);
void check_value(std::string_view key, std::string_view value);

/// The number `value` holds (absent = 0) plus `amount`. UsageError when it holds none or the sum does not fit.
int64_t sum(std::string_view key, const std::optional<std::string>& value, int64_t amount);

/// Whether compare_set may write: the value is the expected one, or absent where nothing is expected.
bool matches(const std::optional<std::string>& value, std::string_view expected);

/// What get() throws when the deadline has passed.
PeerError not_set(std::string_view key, Clock::time_point since);

/// A key as it may appear in a message: printable and not longer than a line.
std::string shown(std::string_view key);

}  // namespace trireme::store::rules
