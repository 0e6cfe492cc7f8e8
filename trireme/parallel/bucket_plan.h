// What the ranks agree on in a learning backward (gradient_sync.h): which parameters get gradients, in which order, and
// in which buckets they travel.
//
//   BucketPlan plan = agree_on_buckets({order, used}, parameters, {.root = 0, .group = group, .options = options});
//   average_now(plan, parameters, hook, group);                // the gradients of the learning backward itself
//
// Called by every rank at the same place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/parallel/bucket_reducer.h"
#include "trireme/parallel/model_parameters.h"

namespace trireme::parallel {

/// What one rank has seen of a backward; empty on a rank that takes no part (join).
struct SeenGradients {
  std::vector<int64_t> order;  ///< the parameters, in the order of their gradients
  std::vector<uint8_t> used;   ///< whether each parameter has a gradient
};

/// A *place* is the position of a parameter in the order of the buckets.
struct BucketPlan {
  std::vector<size_t> in_use;     ///< place -> parameter
  std::vector<int> place;         ///< parameter -> place; -1: not in use
  std::vector<uint8_t> has_used;  ///< parameter -> whether some rank has a gradient for it
  Buckets buckets;

  std::vector<torch::Tensor> tensors(const std::vector<ModelParameter>& parameters) const;
  std::vector<std::string> names(const std::vector<ModelParameter>& parameters) const;
};

struct AgreeOptions {
  int root;  ///< the rank whose order counts
  const Group& group;
  const DataParallelOptions& options;
};

/// In use is what any rank has used, in the order of `root`; then what only others use. With find_unused_parameters all
/// parameters are in use: those without a gradient now may get one later.
BucketPlan agree_on_buckets(const SeenGradients& mine, const std::vector<ModelParameter>& parameters,
                            const AgreeOptions& agree);

/// Averages the gradients that are there, without overlap. A parameter without a gradient on this rank gives zeros.
void average_now(const BucketPlan& plan, const std::vector<ModelParameter>& parameters, const GradientHook& hook,
                 const Group& group);

/// The maximum over the ranks, of each: whether some rank has it.
std::vector<uint8_t> used_by_any(const std::vector<uint8_t>& used, const Group& group);

}  // namespace trireme::parallel
