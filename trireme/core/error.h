// The three kinds of failure a caller can meet, each with its own exit code.
//
//   UsageError   the caller's fault: fix the call, the option or the file        exit 2
//   SystemError  the operating system refused; carries errno                     exit 71
//   PeerError    another rank or node failed us; starting again may cure it      exit 75
//
// Anything else is a defect of Trireme. Every message says who, what, both numbers and the next step.
//
//   throw UsageError("--gpus 9: not visible here; visible are {}", join(visible, ","));
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

/// Exit codes with a meaning of their own. docs/errors.md lists them.
namespace exit_code {
inline constexpr int kUsage = 2;
inline constexpr int kSystem = 71;
inline constexpr int kUnkillable = 74;  // a worker survived SIGKILL and was left behind
inline constexpr int kPeer = 75;
inline constexpr int kInterrupted = 130;
inline constexpr int kNotExecutable = 126;  // as a shell says it
inline constexpr int kNotFound = 127;
}  // namespace exit_code

class Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  /// What a program that ends because of this error should return.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

class UsageError : public Error {
 public:
  template <typename... Args>
  explicit UsageError(fmt::format_string<Args...> format, Args&&... args)
      : Error(exit_code::kUsage, fmt::format(format, std::forward<Args>(args)...)) {}
};

class PeerError : public Error {
 public:
  template <typename... Args>
  explicit PeerError(fmt::format_string<Args...> format, Args&&... args)
      : Error(exit_code::kPeer, fmt::format(format, std::forward<Args>(args)...)) {}
};

class SystemError : public Error {
 public:
  /// `number` is the errno of the refused call; its text is appended: "cannot open x: No such file or directory".
  template <typename... Args>
  SystemError(int number, fmt::format_string<Args...> format, Args&&... args)
      : Error(exit_code::kSystem, with_reason(number, fmt::format(format, std::forward<Args>(args)...))),
        number_(number) {}
  int number() const { return number_; }

 private:
  static std::string with_reason(int number, const std::string& message);
  int number_;
};

/// The text of an errno value, thread-safe.
std::string errno_text(int number);

}  // namespace trireme
