// A model on the disk: PATH.safetensors holds the weights under torch's names, PATH.optimizer.safetensors the state of
// the optimizer and the loss scale, PATH.ema.safetensors the average of the weights where one is kept. Belongs to
// Model.
#pragma once

#include <filesystem>

#include "trireme/train/fit_options.h"
#include "trireme/train/learner.h"

namespace trireme::train {

/// Called by every rank; rank 0 writes.
void write_model(Learner& learner, const std::filesystem::path& path, const SaveOptions& options);
/// The folder `path`. Called by one rank.
void write_for_inference(const Network& net, const std::filesystem::path& path, bundle::Description description);
/// Called by every rank.
void read_model(Learner& learner, const std::filesystem::path& path, const LoadOptions& options);

}  // namespace trireme::train
