// For the tests of the module: what a call refuses, what it logs, and files to read.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/document.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"

namespace trireme::config {

/// The message of the UsageError that `call` throws; "" when it throws none.
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// Collects what is logged while it lives, "warning: …" each.
class LogCapture {
 public:
  LogCapture()
      : before_(set_log_sink([this](LogLevel level, std::string_view text) {
          lines.push_back(std::string(to_string(level)) + ": " + std::string(text));
        })) {}
  ~LogCapture() { set_log_sink(before_); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  std::vector<std::string> lines;

 private:
  LogSink before_;
};

inline Node read_text(const std::string& text) {
  return parse_document(text, "test.yaml");
}

}  // namespace trireme::config
