// A net in a table: its layers, the shapes of their outputs, their parameters.
//
//   Summary summary = model.summary({1, 1, 28, 28});
//   std::cout << summary.text;
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/train/network.h"

namespace trireme {

struct LayerSummary {
  std::string name;                   ///< "features.0"
  std::string type;                   ///< "Conv2d"
  std::vector<int64_t> output_shape;  ///< empty for layers that own no tensor: nothing tells when they are at work
  int64_t params = 0;                 ///< with the statistics of batch normalisation
};

struct Summary {
  std::vector<LayerSummary> layers;
  int64_t total_params = 0;      ///< with the statistics of batch normalisation
  int64_t trainable_params = 0;  ///< those that get gradients
  std::string text;
};

}  // namespace trireme

namespace trireme::train {

/// Runs the net once, in evaluation mode and without gradients, on zeros of these shapes.
Summary summarize(const Network& net, const std::vector<std::vector<int64_t>>& input_sizes, torch::ScalarType dtype);

}  // namespace trireme::train
