// A module's parameters and buffers by name, out of it and into it.
//
//   TensorMap tensors = load_safetensors("resnet50.safetensors");      // torchvision's, say
//   LoadReport report = load_into(*net, tensors, {.skip_mismatch = true});
//   for (const std::string& name : report.skipped) log_info("{} keeps its random start", name);
//
// Names are those of torch: "layer1.0.conv1.weight". Not while another thread uses the module.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "trireme/io/safetensors.h"

namespace trireme::io {

/// Parameters, then buffers. The tensors are the module's own: they change as it trains.
TensorMap state_dict(const torch::nn::Module& module);

struct LoadOptions {
  bool strict = true;          ///< false: names that only one side has are ignored
  bool skip_mismatch = false;  ///< true: tensors of another shape or kind are left as they are (a new class count)
  std::string from = "the checkpoint";  ///< in messages: the file's name
  /// The end of the message; a program that has options for this names them here.
  std::string advice =
      "Is it another model's? skip_mismatch leaves tensors of another shape as they are, strict = false ignores names "
      "that only one side has";
};

/// What was not taken over. All empty: everything was.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module only
  std::vector<std::string> unexpected;  ///< in the tensors only
  std::vector<std::string> skipped;     ///< in both, but of another shape or kind
};

/// What load_into() would report for tensors of these types and shapes; throws as it does. Looks at no values: they may be
/// on the device Meta.
LoadReport check_fit(const TensorMap& ours, const TensorMap& theirs, const LoadOptions& options = {});

/// Copies by name, on whatever device and in whatever floating type the module is. Throws UsageError that lists the
/// missing, unexpected and mismatched names, with both shapes; then nothing of the module has changed.
/// `num_batches_tracked`, which not every implementation of batch normalisation keeps, may be absent on either side.
LoadReport load_into(torch::nn::Module& module, const TensorMap& tensors, const LoadOptions& options = {});

}  // namespace trireme::io
