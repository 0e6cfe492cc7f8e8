// For the tests of the module: texts to read.
#pragma once

#include <string>

#include "trireme/config/document.h"
#include "trireme/core/test_support.h"

namespace trireme::config {

inline Node read_text(const std::string& text) {
  return parse_document(text, "test.yaml");
}

}  // namespace trireme::config
