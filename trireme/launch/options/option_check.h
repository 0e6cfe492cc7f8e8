// The rules between options, once all of them are read.
#pragma once

#include "trireme/launch/options/option_table.h"

namespace trireme::launch {

/// Fills in what follows from several options together (meeting point, number of nodes, slots) and throws UsageError
/// for the first contradiction.
void settle(Draft& draft);

}  // namespace trireme::launch
