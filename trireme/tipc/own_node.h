// Which machine of a list this is.
#pragma once

#include "trireme/tipc/case.h"

namespace trireme::tipc {

/// For each placement the number of this machine in it, 0 where there is no list. UsageError when a list does not have
/// this machine.
std::vector<int> own_nodes(const Case& test);

}  // namespace trireme::tipc
