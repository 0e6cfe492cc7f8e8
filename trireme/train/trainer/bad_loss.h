// What is said of a loss that is no number: where, on which ranks, at which rate, and what to try.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/config/train_config.h"
#include "trireme/train/meter.h"
#include "trireme/train/trainer/log_lines.h"

namespace trireme::trainer {

/// The step that broke, not the one in which it was seen.
struct BrokenStep {
  Place place;
  int64_t step = 0;  ///< of the optimizer, from 1
  double rate = 0;
};

std::string bad_loss_text(const config::TrainConfig& config, const train::BadLoss& bad, const BrokenStep& broken);

}  // namespace trireme::trainer
