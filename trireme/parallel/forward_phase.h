// The phase that a forward pass is recorded as, for the launcher.
#pragma once

#include <torch/types.h>

#include "trireme/watch/report.h"

namespace trireme::detail {

/// Without gradients it is an evaluation.
inline watch::Phase forward_phase() {
  return torch::GradMode::is_enabled() ? watch::Phase::forward : watch::Phase::evaluation;
}

}  // namespace trireme::detail
