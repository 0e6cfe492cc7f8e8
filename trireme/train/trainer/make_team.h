// Global.device -> the ranks that train together, each on its device.
//
//   Team team = make_team(config.global);
#pragma once

#include "trireme/config/global_config.h"
#include "trireme/train/team.h"

namespace trireme::trainer {

/// Meets the others. UsageError that names `-o Global.device=cpu` when the file wants a GPU and there is none.
Team make_team(const config::Global& global);

}  // namespace trireme::trainer
