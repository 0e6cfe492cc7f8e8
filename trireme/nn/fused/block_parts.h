// What the two directions of a fused block share (block_forward.cc, block_backward.cc).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/nn/fused/block_passes.h"
#include "trireme/nn/fused/passes.h"
#include "trireme/nn/kernels/depthwise.h"
#include "trireme/nn/kernels/product.h"

namespace trireme::nn::fused {

/// Channels last.
at::Tensor image_batch(int64_t images, int64_t channels, int64_t height, int64_t width, const at::Tensor& like);

/// [out, in, 1, 1] as [out, in].
at::Tensor matrix(const at::Tensor& pointwise);

/// [wide, 1, kernel, kernel] as [kernel * kernel, wide].
at::Tensor taps(const at::Tensor& weight);

/// The image, normalised and activated, inside of a frame of zeros.
void fill_frame(const float* image, const kernels::Affine& affine, const kernels::Depthwise& shape, float* frame);

inline constexpr int64_t kChunk = 128 << 10;  // numbers of one buffer that a core's second cache holds beside others

// Buffers of a thread.
enum Place : int { kFrame, kGradientFrame, kWide, kWideGradient, kOut, kStaged };

struct Sizes {
  Sizes(const at::Tensor& x, const BlockParameters& parameters, const BlockSettings& settings)
      : images(x.size(0)),
        in(x.size(1)),
        wide(parameters.depthwise.size(0)),
        out(parameters.project.size(0)),
        filter{x.size(2), x.size(3), wide, settings.kernel, settings.stride} {}

  int64_t images, in, wide, out;
  kernels::Depthwise filter;

  int64_t pixels() const { return filter.height * filter.width; }
  int64_t out_pixels() const { return filter.out_height() * filter.out_width(); }
  /// How many images of `floats` numbers are worked on at a time.
  static int64_t chunk(int64_t floats) { return std::max<int64_t>(1, kChunk / floats); }
};

/// A 1x1 convolution's weight [out, in, 1, 1] in the order in which kernels::multiply() reads it.
class PackedWeight {
 public:
  enum class Way : uint8_t { forward, backward };
  PackedWeight(const at::Tensor& weight, Way way)
      : inner_(weight.size(way == Way::forward ? 1 : 0)),
        columns_(weight.size(way == Way::forward ? 0 : 1)),
        packed_(static_cast<size_t>(kernels::packed_size(inner_, columns_))) {
    const int64_t in = weight.size(1);
    const kernels::Steps steps = way == Way::forward ? kernels::Steps{1, in} : kernels::Steps{in, 1};
    kernels::pack(weight.const_data_ptr<float>(), steps, inner_, columns_, packed_.data());
  }
  void multiply(const float* rows, int64_t count, float* out, kernels::Into into = kernels::Into::replace) const {
    kernels::multiply(rows, count, inner_, packed_.data(), columns_, out, into);
  }

 private:
  int64_t inner_, columns_;
  std::vector<float> packed_;
};

/// Part of a tensor that is being made. With `stream`, which is_streamed(tensor) gives, it is made in the caches, where
/// its sums are taken, and then written past them.
class Staged {
 public:
  Staged(const at::Tensor& tensor, bool stream, int64_t begin, int64_t count)
      : target_(tensor.data_ptr<float>() + begin), count_(count), memory_(stream ? scratch(kStaged, count) : target_) {}
  float* memory() const { return memory_; }
  void finish() const {
    if (memory_ != target_) kernels::copy_past_caches(memory_, count_, target_);
  }

 private:
  float* target_;
  int64_t count_;
  float* memory_;
};

/// For each chunk of at most `step` images.
template <typename F>
void in_chunks(int64_t begin, int64_t end, int64_t step, F f) {
  for (int64_t at = begin; at < end; at += step) f(at, std::min(step, end - at));
}

/// What the depthwise convolution reads: the expanded image through its normalisation, or the block's input as it is.
class FilterInput {
 public:
  FilterInput(const at::Tensor& raw, const Norm* norm) : raw_(raw) {
    if (norm != nullptr) {
      affine_ = norm->affine();
    } else {
      one_ = at::ones({raw.size(1)}, raw.options().requires_grad(false));
      zero_ = at::zeros({raw.size(1)}, raw.options().requires_grad(false));
      affine_ = {one_.const_data_ptr<float>(), zero_.const_data_ptr<float>(), kernels::Act::none};
    }
  }
  const float* image(int64_t i) const { return raw_.const_data_ptr<float>() + i * image_size(raw_); }
  const float* fill(int64_t i, const kernels::Depthwise& shape) const {
    float* frame = scratch(kFrame, shape.frame_size());
    fill_frame(image(i), affine_, shape, frame);
    return frame;
  }

 private:
  at::Tensor raw_, one_, zero_;
  kernels::Affine affine_;
};

}  // namespace trireme::nn::fused
