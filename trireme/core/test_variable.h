// For tests of what environment variables do.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "trireme/core/env.h"

namespace trireme {

/// The variable has this value while it lives.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::optional<std::string>& value)
      : name_(std::move(name)), before_(env::get(name_)) {
    env::set(name_, value);
  }
  ~ScopedVariable() { env::set(name_, before_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace trireme
