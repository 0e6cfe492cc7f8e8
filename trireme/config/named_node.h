// Lists of named things with parameters, the form PaddleClas gives its operators, losses, metrics and models:
//
//   - RandCropImage:
//       size: 224
//   - ToCHWImage:
//
// read_named_list() gives {"RandCropImage", its parameters} and {"ToCHWImage", null}.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

struct NamedNode {
  std::string name;
  Node params;  ///< a section or null; not opened (unread.h) until someone asks for a key
};

/// Null gives an empty list. Throws UsageError for an entry that is not one name; the frequent slip of parameters
/// that are not indented below their name has a message of its own.
std::vector<NamedNode> read_named_list(const Node& list);

}  // namespace trireme::config
