// What is done with a bucket of gradients when it is full.
//
//   model.set_gradient_hook([](const GradientBucket& bucket, const Group& group) {
//     bucket.flat.clamp_(-1, 1);
//     return all_reduce_async(bucket.flat, ReduceOp::avg, group);
//   });
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/comm/work.h"

namespace trireme {

struct GradientBucket {
  int index = 0;                              ///< buckets are numbered in the order of their communication
  torch::Tensor flat = {};                    ///< all gradients of the bucket one after the other
  std::vector<torch::Tensor> gradients = {};  ///< the same memory in the parameters' shapes
};

/// Called on every rank for the same buckets in the same order, during backward(). When the Work is done, bucket.flat
/// must hold what the gradients shall be, on every rank the same.
using GradientHook = std::function<Work(const GradientBucket& bucket, const Group& group)>;

enum class GradientCompression {
  none,
  bf16,      ///< half the traffic; 8 bits of precision
  fp16,      ///< half the traffic; 11 bits of precision, may overflow above 65504
  powersgd,  ///< matrices as products of two thin ones, with error feedback (arXiv 1905.13727)
};

/// Averages the bucket as it is.
GradientHook average_gradients();
/// The hook of a compression. `rank` is powersgd's: how thin its matrices are.
GradientHook compressed_gradients(GradientCompression compression, int rank);

}  // namespace trireme
