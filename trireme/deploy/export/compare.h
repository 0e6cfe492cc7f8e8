// Whether an exported file computes what the network computes.
//
//   const std::vector<Sample> samples = take_samples(net, description);
//   compare({.model = "LeNet", .file = "inference.pt"}, samples, [&](const Tensor& x) { return run(x); });
//
// The allowed difference is relative to the range of the network's scores before the activation. Compare without the
// activation first: softmax of an untrained network gives all classes the same score, whatever the file computes.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/deploy/bundle/description.h"
#include "trireme/deploy/export/network.h"

namespace trireme::deploy {

inline constexpr int64_t kTracedBatch = 2;

/// Images -> a row of scores for each.
using Scorer = std::function<torch::Tensor(const torch::Tensor& images)>;

struct Sample {
  torch::Tensor images;
  torch::Tensor scores;  ///< the network's own, before the activation
};

/// Of the first parameter; the CPU when there is none.
torch::Device device_of(const torch::nn::Module& module);

/// The same at every call; the caller's random numbers are left alone.
torch::Tensor random_images(const bundle::Input& input, int64_t batch);

/// One image, as many as are traced, and one more. UsageError when the network fails on some of them or does not give a
/// row of scores for each image. Warns when its scores are so much alike that comparing them says little.
std::vector<Sample> take_samples(const Network& net, const bundle::Description& description);

struct Comparison {
  std::string model;
  std::string file;
  std::string advice = {};                                   ///< for when they differ
  bundle::Activation activation = bundle::Activation::none;  ///< at the end of the file's network
  double tolerance = 1e-4;                                   ///< times the range of the scores before the activation
};

/// UsageError with both numbers when the file's scores differ, are not as many, or cannot be computed.
/// Logs by how much they differ, once for each file: without an activation.
void compare(const Comparison& comparison, const std::vector<Sample>& samples, const Scorer& scorer);

}  // namespace trireme::deploy
