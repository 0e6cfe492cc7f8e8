// Tensors that get gradients but are in no wrapped module: a layer that was forgotten when the model was wrapped is trained
// on each rank by itself.
#pragma once

#include <torch/types.h>

#include <vector>

#include "trireme/comm/group.h"

namespace trireme::parallel {

class OutsideLeaves {
 public:
  struct Leaf {
    torch::Tensor tensor;  // held, so that no other has its address
    torch::Tensor values;  // a copy
  };

  /// Called inside the first two backwards that average. A leaf that gets a gradient in both, with other values in the
  /// second, is trained: a warning on rank 0. Inputs are other tensors each time, or keep their values.
  void look(uint64_t backward, const Group& group);

 private:
  std::vector<Leaf> seen_;  // in the first
};

}  // namespace trireme::parallel
