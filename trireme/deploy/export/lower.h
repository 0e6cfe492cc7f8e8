// A traced graph -> ONNX: each aten operator becomes the node or nodes that mean the same.
//
//   Lowered lowered = lower(traced, {.model = "LeNet", .input = "x", .output = "scores"});
//   lowered.model.write(sink);
//
// docs/export.md lists the operators that are supported; another one is a UsageError that names it. The number of images
// stays free, and their height and width when the graph was traced so.
#pragma once

#include <torch/types.h>

#include <list>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/deploy/export/onnx_model.h"
#include "trireme/deploy/export/traced.h"

namespace trireme::deploy {

/// The network takes images of any size, but its ONNX form does not. Trace it for one size, then it does.
class FixedSizeNeeded : public UsageError {
 public:
  using UsageError::UsageError;
};

struct LowerOptions {
  std::string model;
  std::string input = "x";
  std::string output = "scores";  ///< of several outputs the first; then scores_1 and so on
};

/// The model, and the tensors whose bytes it points to.
struct Lowered {
  OnnxModel model;
  std::list<torch::Tensor> kept = {};
};

Lowered lower(const Traced& traced, const LowerOptions& options);

/// The operators that lower() knows, as "relu", sorted.
std::vector<std::string> lowered_operators();

}  // namespace trireme::deploy
