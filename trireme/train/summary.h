// A net in a table: its layers, the shapes of their outputs, their parameters.
//
//   Summary summary = model.summary({1, 1, 28, 28});
//   std::cout << summary.text;
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

/// Runs the net once, in evaluation mode and without gradients, on zeros of this shape.
Summary summarize(torch::nn::Module& module, const std::function<torch::Tensor(const torch::Tensor&)>& forward,
                  const std::vector<int64_t>& input_size, torch::ScalarType dtype = torch::kFloat);

}  // namespace trireme
