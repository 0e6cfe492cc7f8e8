// Initial values for the weights of a whole network, by kind of layer. Drawn from torch's generator: torch::manual_seed
// before it makes them repeatable.
//
//   nn::kaiming_convs(*this, nn::Fan::out);
//   nn::normal_linears(*this, 0.01);
#pragma once

#include <torch/nn/module.h>

namespace trireme::nn {

/// What counts as the inputs (or outputs) of one weight of a convolution.
enum class Fan {
  in,             ///< the inputs of one output: kernel * in / groups
  out,            ///< kernel * out; torchvision's choice
  in_all_groups,  ///< kernel * in, however many groups: Paddle's Conv2D when it is told nothing
};

/// Weights from N(0, 2 / fan) (He et al., 2015), biases 0.
void kaiming_convs(torch::nn::Module& root, Fan fan);
/// Weights from N(0, std^2), biases 0.
void normal_linears(torch::nn::Module& root, double std);
/// Weights uniform in +-sqrt(6 / (in + out)) (Glorot and Bengio, 2010), biases 0: Paddle's Linear.
void xavier_linears(torch::nn::Module& root);

}  // namespace trireme::nn
