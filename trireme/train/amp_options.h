// Mixed precision for a Model.
#pragma once

#include <torch/types.h>

#include "trireme/optim/amp.h"

namespace trireme {

enum class AmpLevel {
  O0,  ///< everything as the net has it, float32 as a rule
  O1,  ///< convolutions and products in low precision, by torch's autocast
  O2,  ///< the weights too, except those of normalisations; the optimizer works on float32 copies
};

struct AmpOptions {
  AmpLevel level = AmpLevel::O0;
  torch::ScalarType dtype = torch::kBFloat16;  ///< or torch::kHalf, for which the loss is scaled
  optim::GradScaler::Options scaler = {};      ///< of torch::kHalf; `enabled` and `agree` are the Model's
};

}  // namespace trireme
