// Keys that were never read: misspelt ones, or ones that Trireme does not know.
//
// A section counts only once one of its keys was asked for, and not while it is handed on to others. So the parameters
// of an image operator that has not been made yet are not reported before its turn; call warn_unread() again after it.
#pragma once

#include "trireme/config/node.h"

namespace trireme::config {

/// Logs a warning for each, with the nearest key that was asked for; once however often it is called.
void warn_unread(const Node& root);

}  // namespace trireme::config
