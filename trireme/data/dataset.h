// What can be trained on: a number of samples, each an input and what is to be learned from it.
//
//   class Squares : public data::Dataset {
//    public:
//     int64_t size() const override { return 1000; }
//     data::Sample get(int64_t index) const override {
//       auto x = torch::tensor(static_cast<float>(index));
//       return {x, x * x};
//     }
//   };
//
// Datasets know nothing of ranks, batches and order: that is the Loader's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

namespace trireme::data {

struct Sample {
  torch::Tensor data;
  torch::Tensor target;
};

/// Samples stacked along a new first dimension.
using Batch = Sample;

/// A Loader calls get() or batch() from a thread of its own, and several Loaders may share a dataset: both must be safe
/// to call from several threads at once, and must give the same for the same index whenever they are called.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// 0 <= index < size().
  virtual Sample get(int64_t index) const = 0;
  /// get() of each, stacked. Override it where many at once are faster than one by one.
  virtual Batch batch(std::span<const int64_t> indices) const;
};

}  // namespace trireme::data
