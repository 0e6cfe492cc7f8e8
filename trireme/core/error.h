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

#include <cstdint>
#include <exception>
#include <optional>
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
inline constexpr int kHang = 76;            // a job was ended because its ranks wait for each other for ever
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

/// A rank or a node that others depend on is dead, late, cut off or has given up. A failed operation of a group fills
/// the facts, as far as they are known; the text is for people.
///
///   catch (const PeerError& error) { if (error.rank()) replace(*error.rank(), error.operation(), error.sequence()); }
class PeerError : public Error {
 public:
  struct Facts {
    std::optional<int> rank{};  ///< the peer that is blamed, by its number in the group
    std::string operation{};    ///< what failed: "all_reduce"
    uint64_t sequence = 0;      ///< its number among the group's collectives, from 1; 0: not known
    std::string group{};        ///< the name of the group
    std::string reason{};       ///< the cause alone, without the reporting rank and operation
  };

  template <typename... Args>
  explicit PeerError(fmt::format_string<Args...> format, Args&&... args)
      : PeerError(Facts{.reason = fmt::format(format, std::forward<Args>(args)...)}) {}
  /// The reason is the whole text.
  explicit PeerError(Facts facts) : Error(exit_code::kPeer, facts.reason), facts_(std::move(facts)) {}
  PeerError(Facts facts, const std::string& text) : Error(exit_code::kPeer, text), facts_(std::move(facts)) {}

  std::optional<int> rank() const { return facts_.rank; }
  const std::string& operation() const { return facts_.operation; }
  uint64_t sequence() const { return facts_.sequence; }
  const std::string& group() const { return facts_.group; }
  const std::string& reason() const { return facts_.reason; }
  const Facts& facts() const { return facts_; }

 private:
  Facts facts_;
};

/// The text of an exception without the backtrace that libtorch adds to its own.
std::string without_backtrace(const std::exception& error);

class SystemError : public Error {
 public:
  /// `number` is the errno of the refused call; its text is appended: "cannot open x: No such file or directory".
  template <typename... Args>
  SystemError(int number, fmt::format_string<Args...> format, Args&&... args)
      : SystemError(number, Subject{fmt::format(format, std::forward<Args>(args)...)}) {}
  int number() const { return number_; }
  /// The message without the text of errno: "cannot open x".
  const std::string& subject() const { return subject_; }

 private:
  struct Subject {
    std::string text;
  };
  SystemError(int number, Subject subject);
  int number_;
  std::string subject_;
};

}  // namespace trireme
