// The options of an optimizer as a text, to compare those of several ranks. Internal to the library.
#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

namespace trireme::optim {

/// One line for each group of parameters: equal on two ranks that are to take the same steps.
std::vector<std::string> describe_options(const torch::optim::Optimizer& optimizer);

}  // namespace trireme::optim
