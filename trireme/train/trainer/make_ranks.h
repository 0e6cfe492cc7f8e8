// Global.device -> the ranks that train together, each on its device.
//
//   Ranks ranks = make_ranks(config.global);
#pragma once

#include "trireme/config/global_config.h"
#include "trireme/train/ranks.h"

namespace trireme::trainer {

/// Meets the others. UsageError that names `-o Global.device=cpu` when the file wants a GPU and there is none.
train::Ranks make_ranks(const config::Global& global);

}  // namespace trireme::trainer
