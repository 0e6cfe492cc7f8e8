#include "trireme/core/option_values.h"

#include <charconv>
#include <optional>
#include <span>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxTime = std::chrono::days(30);
constexpr double kMaxBytes = static_cast<double>(int64_t{1} << 40);

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kTimes[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"min", 60'000}, {"h", 3'600'000}};
constexpr Unit kBytes[] = {{"", 1}, {"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}};

/// "1.5M" -> 1.5 * 2^20; nothing when it is not a number with one of the units.
std::optional<double> quantity(std::string_view text, std::span<const Unit> units) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string unit = to_lower({end, static_cast<size_t>(text.data() + text.size() - end)});
  for (const Unit& known : units)
    if (error == std::errc() && unit == known.name) return number * known.factor;
  return std::nullopt;
}

}  // namespace

std::string Given::shown() const {
  const std::string value = text.empty() ? "\"\"" : printable(text);
  return source.starts_with('-') ? source + " " + value : source + "=" + value;
}

int int_value(const Given& given, int64_t low, int64_t high, std::string_view advice) {
  const auto number = parse_int(given.text, low, high);
  if (!number)
    throw UsageError("{}: must be a whole number from {} to {}{}{}", given.shown(), low, high,
                     advice.empty() ? "" : "; ", advice);
  return static_cast<int>(*number);
}

bool is_bool_word(std::string_view text) {
  const std::string word = to_lower(text);
  for (const char* known : {"true", "false", "yes", "no", "on", "off", "1", "0"})
    if (word == known) return true;
  return false;
}

bool bool_value(const Given& given) {
  const std::string word = to_lower(given.text);
  if (!is_bool_word(word)) throw UsageError("{}: must be true or false", given.shown());
  return word == "true" || word == "yes" || word == "on" || word == "1";
}

milliseconds duration_value(const Given& given) {
  const auto value = quantity(given.text, kTimes);
  if (!value || *value > static_cast<double>(kMaxTime.count()))
    throw UsageError("{}: must be a time from 0 to 30 days, like 10, 10s, 500ms, 2m or 1h (a plain number is seconds)",
                     given.shown());
  return milliseconds(static_cast<int64_t>(*value));
}

size_t bytes_value(const Given& given) {
  const auto value = quantity(given.text, kBytes);
  if (!value || *value < 1 || *value > kMaxBytes)
    throw UsageError("{}: must be from 1 byte to 1024G, like 1000000, 512K, 16M or 1.5G", given.shown());
  return static_cast<size_t>(*value);
}

}  // namespace trireme
