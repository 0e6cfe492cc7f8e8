#include "trireme/core/error.h"

#include "trireme/core/text.h"

namespace trireme {

SystemError::SystemError(int number, Subject subject)
    : Error(exit_code::kSystem, subject.text + ": " + errno_text(number)),
      number_(number),
      subject_(std::move(subject.text)) {}

std::string without_backtrace(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find("\nException raised from "));  // how c10::Error introduces it
}

}  // namespace trireme
