// What the fused layers have in common: images shared out over the threads, scratch memory, and what batch normalisation
// makes of its sums.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/nn/kernels/rows.h"

namespace trireme::nn::fused {

/// Whether the tensor is so large that no cache keeps it until its next use: then it is written past the caches, which
/// stay with what is read next (unless TRIREME_WITHOUT=streaming_stores). Reads the environment: call it once for a
/// tensor, before its passes start threads.
bool is_streamed(const at::Tensor& tensor);

/// How a batch is shared out. The number of shares depends on the batch alone, never on the number of threads: sums over
/// the shares, taken in their order, are the same on every machine.
int64_t shares_of(int64_t images);

/// The numbers of one image of a channels-last batch. Not stride(0), which may be anything for a batch of one image.
inline int64_t image_size(const at::Tensor& batch) {
  return batch.numel() / batch.size(0);
}

/// f(share, first image, last + 1) for each share, on libtorch's threads.
void over_images(int64_t images, const std::function<void(int64_t share, int64_t begin, int64_t end)>& f);

/// Memory of this thread for `floats` numbers, 64-byte aligned; what was in it before may be there still. Each place is
/// a buffer of its own.
float* scratch(int place, int64_t floats);

/// Sums of two kinds for each channel, one set for each share.
class ShareSums {
 public:
  ShareSums(int64_t images, int64_t channels);
  double* first(int64_t share) { return sums_.data() + share * 2 * channels_; }
  double* second(int64_t share) { return first(share) + channels_; }
  const double* first(int64_t share) const { return sums_.data() + share * 2 * channels_; }
  const double* second(int64_t share) const { return first(share) + channels_; }
  /// Over all shares.
  std::vector<double> total() const;  // first of every channel, then second

 private:
  int64_t channels_;
  std::vector<double> sums_;
};

/// Mean and variance of each channel over a batch that comes in parts. Each share counts from its own first row, so that
/// a mean far from 0 costs no digits; the shares are joined in their order.
class ShareMoments {
 public:
  ShareMoments(int64_t images, int64_t channels);
  /// One thread at a time for each share.
  void add(int64_t share, const float* x, int64_t rows);
  int64_t channels() const { return channels_; }
  /// Mean of each channel, variance of each channel, how many numbers a channel has.
  std::vector<double> packed() const;

 private:
  struct Share {
    int64_t rows = 0;
    std::vector<float> pivot = {};
  };
  struct Moments {
    double count = 0;
    double mean = 0;
    double squares = 0;  // of the distances from the mean
  };
  Moments joined(int64_t channel) const;

  int64_t channels_;
  std::vector<Share> shares_;
  ShareSums sums_;
};

/// One batch normalisation of a batch, from its sums on.
class Norm {
 public:
  Norm() = default;
  /// In forward.
  Norm(const ShareMoments& moments, const at::Tensor& weight, const at::Tensor& bias, double epsilon, kernels::Act act)
      : Norm(moments.packed(), weight, bias, epsilon, act) {}
  /// Likewise, from ShareMoments::packed(), perhaps joined with that of other ranks.
  Norm(at::ArrayRef<double> moments, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
       kernels::Act act);
  /// In backward: from what forward returned.
  Norm(const at::Tensor& statistics, double count, const at::Tensor& weight, const at::Tensor& bias, kernels::Act act);

  /// [3, channels]: mean, 1 / sqrt(variance + epsilon), variance; what backward and the running statistics need.
  const at::Tensor& statistics() const { return statistics_; }
  kernels::Affine affine() const { return {scale_.data(), shift_.data(), act_}; }
  const float* mean() const { return statistics_.const_data_ptr<float>(); }
  const float* inverse() const { return mean() + channels(); }
  int64_t channels() const { return statistics_.size(1); }

  /// From the sums of backward_sums(): the sums of g, then those of g * (x - mean) * inverse.
  std::vector<double> normal_sums(const ShareSums& sums) const;
  /// From these sums: afterwards input() gives dx, weight_gradient() and bias_gradient() theirs.
  void set_backward(at::ArrayRef<double> normal_sums);
  void set_backward(const ShareSums& sums) { set_backward(normal_sums(sums)); }
  kernels::BackwardInput input() const { return {a_.data(), b_.data(), c_.data()}; }
  const at::Tensor& weight_gradient() const { return weight_gradient_; }
  const at::Tensor& bias_gradient() const { return bias_gradient_; }

 private:
  void set_affine(const at::Tensor& weight, const at::Tensor& bias);

  double count_ = 0;
  kernels::Act act_ = kernels::Act::none;
  at::Tensor statistics_, weight_gradient_, bias_gradient_;
  std::vector<float> scale_, shift_, a_, b_, c_;
};

}  // namespace trireme::nn::fused
