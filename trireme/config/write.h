// A tree of values as YAML text, which parse_yaml() reads as the same tree.
#pragma once

#include <string>

#include "trireme/config/value.h"

namespace trireme::config {

std::string write_yaml(const Value& root);

}  // namespace trireme::config
