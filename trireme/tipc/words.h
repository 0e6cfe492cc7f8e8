// The words of a command line.
#pragma once

#include <string>
#include <vector>

#include "trireme/core/shell.h"

namespace trireme::tipc {

using Words = std::vector<std::string>;

inline void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

}  // namespace trireme::tipc
