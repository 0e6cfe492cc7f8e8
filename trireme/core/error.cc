#include "trireme/core/error.h"

#include <system_error>

namespace trireme {

std::string errno_text(int number) {
  return std::generic_category().message(number);
}

SystemError::SystemError(int number, Subject subject)
    : Error(exit_code::kSystem, subject.text + ": " + errno_text(number)),
      number_(number),
      subject_(std::move(subject.text)) {}

}  // namespace trireme
