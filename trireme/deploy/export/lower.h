// A traced graph -> ONNX: each aten operator becomes the node or nodes that mean the same.
//
//   Lowered lowered = lower(traced, {.model = "LeNet", .input = "x", .output = "scores"});
//   lowered.model.write(sink);
//
// Supported is what image classifiers are made of (docs/export.md has the list); another operator is a UsageError that
// names it. The number of images stays free; their size is the traced one.
#pragma once

#include <torch/types.h>

#include <list>
#include <string>
#include <vector>

#include "trireme/deploy/export/onnx_model.h"
#include "trireme/deploy/export/traced.h"

namespace trireme::deploy {

struct LowerOptions {
  std::string model;
  std::string input = "x";
  std::string output = "scores";
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
