#include "trireme/core/error.h"

#include <system_error>

namespace trireme {

std::string errno_text(int number) {
  return std::generic_category().message(number);
}

std::string SystemError::with_reason(int number, const std::string& message) {
  return message + ": " + errno_text(number);
}

}  // namespace trireme
