// From the text behind an option to a value, for every program. Each function throws UsageError that shows the option,
// what was written and what is allowed.
//
//   int_value({"--rank", "7"}, 0, 15)       ->  7
//   duration_value({"--grace", "500ms"})    ->  500 ms
//   bytes_value({"--body-limit", "1.5M"})   ->  1572864
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// What was written for an option, and where: source is "--gpus" as typed, or "PADDLE_DEVICES".
struct Given {
  std::string source;
  std::string text;
  /// "--gpus 0,1", or "PADDLE_DEVICES=0,1" for a variable.
  std::string shown() const;
};

/// A whole number; low and high are those of an int.
int int_value(const Given& given, int64_t low, int64_t high, std::string_view advice = "");
/// true/false, yes/no, on/off, 1/0, in any case.
bool bool_value(const Given& given);
bool is_bool_word(std::string_view text);
/// `10`, `10s`, `500ms`, `2m`, `1h`, `0.5`; up to 30 days. Plain numbers are seconds.
std::chrono::milliseconds duration_value(const Given& given);
/// `1000000`, `512K`, `16M`, `1.5G`; 1 to 2^40. A K is 1024.
size_t bytes_value(const Given& given);

}  // namespace trireme
