// c10d::Reducer as GradientSync needs it: armed in the middle of a backward, with our gradient hooks, in one file, as
// its constructor changes between releases of libtorch.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/parallel/gradient_hook.h"
#include "trireme/parallel/gradient_sync.h"

namespace trireme::parallel {

using Buckets = std::vector<std::vector<size_t>>;  ///< each a list of places: indices into the reducer's tensors

/// Cut by size, in the order given.
Buckets make_buckets(const std::vector<torch::Tensor>& tensors, const DataParallelOptions& options);

/// The tensors get hooks of c10d's own: while armed, each gradient that comes fills its bucket, and a full bucket goes
/// through the gradient hook. The end of the backward waits for all of them.
class BucketReducer {
 public:
  BucketReducer(const std::vector<torch::Tensor>& tensors, const std::vector<std::string>& names,
                const Buckets& buckets, const Group& group, const GradientHook& hook,
                const DataParallelOptions& options);
  ~BucketReducer();
  BucketReducer(const BucketReducer&) = delete;
  BucketReducer& operator=(const BucketReducer&) = delete;

  /// Called when a backward has begun. `unused` get no gradient in it; what they hold already takes part, else zeros.
  void arm(std::vector<size_t> unused);
  /// This place gets no further gradient in this backward. Only inside of it.
  void mark_ready(size_t place);
  /// Ends the first backward of a static graph.
  void reduce_late();
  /// The hooks of one backward, with zeros.
  void reduce_zeros();

 private:
  class Armed;
  Group group_;
  GradientHook hook_;
  std::unique_ptr<Armed> reducer_;
};

}  // namespace trireme::parallel
