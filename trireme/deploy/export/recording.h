// Runs of a network, recorded operator by operator: on other numbers of images, and on images of other sizes.
//
//   const std::vector<Weight> weights = weights_of(*net.module);
//   const Recording two = record(net, weights, random_images(input, 2));
//   const Recording three = record(net, weights, random_images(input, 3));
//   require_same_operators(two, three);
//
// libtorch's tracer writes the sizes of one run into the graph as numbers. What differs between recordings is what
// follows the images (sizes.h).
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/deploy/export/network.h"

namespace trireme::deploy {

struct Weight {
  std::string name;
  torch::Tensor value;
};

struct Recording {
  std::shared_ptr<torch::jit::Graph> graph;  ///< inputs: the images, then the weights in their order
  torch::Tensor images;                      ///< float32, on the CPU
  Outputs outputs;                           ///< what the network gave for them, on the CPU
};

/// Parameters, then buffers, each tensor once: shared weights keep their first name.
std::vector<Weight> weights_of(const torch::nn::Module& module);

/// Of the first floating-point weight; float32 when there is none. The network gets its images in this type.
at::ScalarType type_of(const std::vector<Weight>& weights);

/// Of the first parameter; the CPU when there is none.
torch::Device device_of(const torch::nn::Module& module);

/// Runs the network in the mode in which it is; nothing of it changes. UsageError: it does not take such images, or does
/// not return tensors.
Recording record(const Network& net, const std::vector<Weight>& weights, const torch::Tensor& images);

/// UsageError names the first operator that the second run does not have in the same place, on the same values.
void require_same_operators(const Recording& one, const Recording& other);

/// "3 images of 28 x 28"
std::string shown(const torch::Tensor& images);

}  // namespace trireme::deploy
