// Where a node gets the job's token from.
#pragma once

#include <optional>

#include "trireme/core/token.h"

namespace trireme::launch {

/// TRIREME_TOKEN_FILE if set (unreadable is an error, never passed over), else ~/.config/trireme/token if it exists,
/// else nothing.
std::optional<Token> configured_token();

}  // namespace trireme::launch
