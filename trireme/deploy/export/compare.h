// Whether an exported file computes what the network computes.
//
//   compare({.model = "LeNet", .file = "inference.pt"}, traced.recordings, [&](const Tensor& x) { return run(x); });
//
// The allowed difference is relative to the range of the network's scores before the activation. Compare without the
// activation first: softmax of an untrained network gives all classes the same score, whatever the file computes.
#pragma once

#include <torch/types.h>

#include <functional>
#include <span>
#include <string>

#include "trireme/deploy/bundle/description.h"
#include "trireme/deploy/export/recording.h"

namespace trireme::deploy {

/// Images -> what the network gives for them.
using Scorer = std::function<Outputs(const torch::Tensor& images)>;

/// Float32's, over all the layers; of a network in a shorter type, which is not rewritten, little more than the type's.
double rounding_of(at::ScalarType type);

/// Warns when the scores are so much alike that comparing them says little.
void warn_if_alike(std::span<const Recording> recordings, const std::string& model);

struct Comparison {
  std::string model;
  std::string file;
  std::function<std::string()> advice = {};                  ///< for when they differ
  bundle::Activation activation = bundle::Activation::none;  ///< at the end of the file's network
  double tolerance = 1e-4;                                   ///< times the range of the scores before the activation
  double rounding = 5e-6;                                    ///< times the largest of them, see rounding_of()
};

/// UsageError with both numbers when the file's outputs differ from those recorded, have other shapes, or cannot be
/// computed. Logs by how much the worst output differs, once for each file: without an activation.
void compare(const Comparison& comparison, std::span<const Recording> recordings, const Scorer& scorer);

}  // namespace trireme::deploy
