// Where Trireme's own words go. The library never writes to the terminal by itself: it logs, and the program decides.
//
//   log_warning("[launch] node {} answers after {} ms", host, ms);
//   set_log_sink([](LogLevel level, std::string_view text) { my_logger(text); });
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

enum class LogLevel { debug, info, warning, error, off };

using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink (default: standard error with time and level). Thread-safe. Returns the one before.
LogSink set_log_sink(LogSink sink);
/// Messages below `level` are dropped (default: TRIREME_LOG_LEVEL, else info).
void set_log_level(LogLevel level);
/// The same, unless TRIREME_LOG_LEVEL is set: for programs that have a default of their own.
void set_default_log_level(LogLevel level);
/// TRIREME_LOG_LEVEL, or `level` when that is not set.
LogLevel log_level_or(LogLevel level);
/// "debug", "INFO", "warning", "error", "off" or Python's numbers (10, 20, 30, 40). Throws UsageError.
LogLevel parse_log_level(std::string_view text);

/// The name that parse_log_level() reads.
const char* to_string(LogLevel level);

void log(LogLevel level, std::string_view message);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trireme
