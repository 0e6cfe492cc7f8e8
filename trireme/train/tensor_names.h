// Which tensors of a sample a Model uses, and for what.
//
//   Model model(Siamese(128), {.inputs = {"left", "right"}, .labels = {"same"}});
#pragma once

#include <string>
#include <vector>

namespace trireme {

/// The names of tensors in data::Sample, in the order in which network and loss take them.
struct TensorNames {
  std::vector<std::string> inputs = {};  ///< empty: the first ones, as many as the network's forward() needs
  std::vector<std::string> labels = {};  ///< empty: all others
};

}  // namespace trireme
