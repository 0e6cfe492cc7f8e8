#include "trireme/core/error.h"

#include "trireme/core/text.h"

namespace trireme {

SystemError::SystemError(int number, Subject subject)
    : Error(exit_code::kSystem, subject.text + ": " + errno_text(number)),
      number_(number),
      subject_(std::move(subject.text)) {}

}  // namespace trireme
