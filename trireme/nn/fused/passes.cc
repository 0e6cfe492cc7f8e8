#include "trireme/nn/fused/passes.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>

namespace trireme::nn::fused {
namespace {

constexpr int64_t kShares = 16;
constexpr int kPlaces = 8;
constexpr size_t kAlignment = 64;

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};
struct Buffer {
  std::unique_ptr<float, Free> memory;
  int64_t floats = 0;
};

}  // namespace

int64_t shares_of(int64_t images) {
  return std::min(images, kShares);
}

void over_images(int64_t images, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const int64_t shares = shares_of(images);
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) f(share, share * images / shares, (share + 1) * images / shares);
  });
}

float* scratch(int place, int64_t floats) {
  thread_local std::array<Buffer, kPlaces> buffers;
  Buffer& buffer = buffers.at(static_cast<size_t>(place));
  if (buffer.floats < floats) {
    const size_t bytes = (static_cast<size_t>(floats) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
    buffer.memory.reset();
    buffer.memory.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
    if (!buffer.memory) throw std::bad_alloc();
    buffer.floats = floats;
  }
  return buffer.memory.get();
}

ShareSums::ShareSums(int64_t images, int64_t channels)
    : channels_(channels), sums_(static_cast<size_t>(shares_of(images) * 2 * channels)) {}

std::vector<double> ShareSums::total() const {
  std::vector<double> total(static_cast<size_t>(2 * channels_));
  for (size_t i = 0; i < sums_.size(); ++i) total[i % total.size()] += sums_[i];
  return total;
}

Norm::Norm(const ShareSums& sums, int64_t count, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
           kernels::Act act)
    : count_(count), act_(act), statistics_(at::empty({3, weight.numel()}, weight.options().requires_grad(false))) {
  const std::vector<double> total = sums.total();
  const int64_t channels = weight.numel();
  auto* mean = statistics_.data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    const auto i = static_cast<size_t>(c);
    const double average = total[i] / static_cast<double>(count);
    const double variance =
        std::max(total[i + static_cast<size_t>(channels)] / static_cast<double>(count) - average * average, 0.0);
    mean[c] = static_cast<float>(average);
    mean[channels + c] = static_cast<float>(1 / std::sqrt(variance + epsilon));
    mean[2 * channels + c] = static_cast<float>(variance);
  }
  set_affine(weight, bias);
}

Norm::Norm(const at::Tensor& statistics, int64_t count, const at::Tensor& weight, const at::Tensor& bias,
           kernels::Act act)
    : count_(count), act_(act), statistics_(statistics) {
  set_affine(weight, bias);
}

void Norm::set_affine(const at::Tensor& weight, const at::Tensor& bias) {
  const auto* weights = weight.const_data_ptr<float>();
  const auto* biases = bias.const_data_ptr<float>();
  scale_.resize(static_cast<size_t>(channels()));
  shift_.resize(scale_.size());
  for (int64_t c = 0; c < channels(); ++c) {
    scale_[static_cast<size_t>(c)] = weights[c] * inverse()[c];
    shift_[static_cast<size_t>(c)] = biases[c] - mean()[c] * scale_[static_cast<size_t>(c)];
  }
}

void Norm::set_backward(const ShareSums& sums) {
  const std::vector<double> total = sums.total();
  weight_gradient_ = at::empty({channels()}, statistics_.options());
  bias_gradient_ = at::empty({channels()}, statistics_.options());
  a_ = scale_;
  b_.resize(scale_.size());
  c_.resize(scale_.size());
  for (int64_t channel = 0; channel < channels(); ++channel) {
    const auto i = static_cast<size_t>(channel);
    const double sum = total[i];
    const double centred = total[i + scale_.size()];
    const double inverse_of = inverse()[channel];
    weight_gradient_.data_ptr<float>()[channel] = static_cast<float>(centred * inverse_of);
    bias_gradient_.data_ptr<float>()[channel] = static_cast<float>(sum);
    // dx = scale * (g - mean(g) - (x - mean) * inverse^2 * mean(g * (x - mean)))
    const double slope = scale_[i] * centred * inverse_of * inverse_of / static_cast<double>(count_);
    b_[i] = static_cast<float>(-slope);
    c_[i] = static_cast<float>(slope * mean()[channel] - scale_[i] * sum / static_cast<double>(count_));
  }
}

}  // namespace trireme::nn::fused
