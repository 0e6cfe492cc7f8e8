// Settings that every rank must give alike: ranks that differ would wait for each other, or train different things.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme::parallel {

/// Called by all members, `mine` one setting a line: "micro_batches = 8". UsageError on every one for the first line that
/// differs from rank 0's, with both.
void require_same_settings(const char* who, const std::vector<std::string>& mine, const Group& group);

/// The same over the grid of two axes; `data` may be no group. The error names the places along `pipe`.
void require_same_settings(const char* who, const std::vector<std::string>& mine, const Group& pipe, const Group& data);

}  // namespace trireme::parallel
