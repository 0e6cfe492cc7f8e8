// Keys that were never read: misspelt ones, or ones that Trireme does not know.
//
// A section counts only once one of its keys was asked for, and not while it is handed on to others. So the parameters
// of an image operator that no one has made yet are not reported before its turn; call warn_unread() again after it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

struct UnreadKey {
  std::string where;                   ///< "ResNet50.yaml:12"
  std::string path;                    ///< "Global.epoch"
  std::optional<std::string> nearest;  ///< the key of the same section that was probably meant: "epochs"
};

std::vector<UnreadKey> unread_keys(const Node& root);

/// Logs a warning for each, once however often it is called.
void warn_unread(const Node& root);

}  // namespace trireme::config
