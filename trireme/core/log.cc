#include "trireme/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err, spdlog::level::off};
  return kLevels[static_cast<size_t>(level)];
}

LogSink standard_error_sink() {
  auto logger = std::make_shared<spdlog::logger>("trireme", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("TRIREME %^%l%$ %Y-%m-%d %H:%M:%S %v");
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return [logger](LogLevel level, std::string_view text) {
    logger->log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
  };
}

// An unknown level must not end the program that happens to log.
std::optional<LogLevel> level_of_environment(const LogSink& sink) {
  const auto text = env::get_nonempty("TRIREME_LOG_LEVEL");
  if (!text) return std::nullopt;
  try {
    return parse_log_level(*text);
  } catch (const UsageError& error) {
    sink(LogLevel::warning, fmt::format("TRIREME_LOG_LEVEL is ignored: {}", error.what()));
    return std::nullopt;
  }
}

struct State {
  std::mutex mutex;
  LogSink sink = standard_error_sink();
  const std::optional<LogLevel> user_level = level_of_environment(sink);
  std::atomic<LogLevel> level{user_level.value_or(LogLevel::info)};
};

State& state() {
  static State* instance = new State;  // never destroyed: threads may log while the program ends
  return *instance;
}

}  // namespace

LogSink set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().sink, std::move(sink));
}

void set_log_level(LogLevel level) {
  state().level = level;
}

void set_default_log_level(LogLevel level) {
  if (!state().user_level) set_log_level(level);
}

LogLevel log_level_or(LogLevel level) {
  return state().user_level.value_or(level);
}

LogLevel parse_log_level(std::string_view text) {
  const std::string name = to_lower(text);
  if (name == "debug" || name == "10") return LogLevel::debug;
  if (name == "info" || name == "20") return LogLevel::info;
  if (name == "warning" || name == "warn" || name == "30") return LogLevel::warning;
  if (name == "error" || name == "critical" || name == "40" || name == "50") return LogLevel::error;
  if (name == "off") return LogLevel::off;
  throw UsageError("log level \"{}\" is not known; use debug, info, warning, error or off", text);
}

const char* to_string(LogLevel level) {
  constexpr const char* kNames[] = {"debug", "info", "warning", "error", "off"};
  return kNames[static_cast<int>(level)];
}

void log(LogLevel level, std::string_view message) {
  if (level < state().level) return;
  const std::lock_guard lock(state().mutex);
  if (state().sink) state().sink(level, message);
}

}  // namespace trireme
