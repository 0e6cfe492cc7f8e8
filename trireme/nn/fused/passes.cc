#include "trireme/nn/fused/passes.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>

#include "trireme/core/levers.h"
#include "trireme/nn/fused/threads.h"

namespace trireme::nn::fused {
namespace {

constexpr int64_t kShares = 16;
constexpr int64_t kBeyondCaches = int64_t{2} << 20;  // numbers
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

bool is_streamed(const at::Tensor& tensor) {
  return tensor.numel() >= kBeyondCaches && is_on(Lever::streaming_stores);
}

int64_t shares_of(int64_t images) {
  return std::min(images, kShares);
}

void over_images(int64_t images, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const int64_t shares = shares_of(images);
  on_threads(shares, [&](int64_t share) { f(share, share * images / shares, (share + 1) * images / shares); });
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

ShareMoments::ShareMoments(int64_t images, int64_t channels)
    : channels_(channels), shares_(static_cast<size_t>(shares_of(images))), sums_(images, channels) {}

void ShareMoments::add(int64_t share, const float* x, int64_t rows) {
  if (rows == 0) return;
  Share& mine = shares_[static_cast<size_t>(share)];
  if (mine.rows == 0) mine.pivot.assign(x, x + channels_);
  mine.rows += rows;
  kernels::add_sums(x, {rows, channels_}, mine.pivot.data(), sums_.first(share), sums_.second(share));
}

// By Chan's formula for two sets of numbers.
ShareMoments::Moments ShareMoments::joined(int64_t channel) const {
  Moments all;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (shares_[i].rows == 0) continue;
    const auto count = static_cast<double>(shares_[i].rows);
    const double sum = sums_.first(static_cast<int64_t>(i))[channel];
    const double mean = shares_[i].pivot[static_cast<size_t>(channel)] + sum / count;
    const double squares = sums_.second(static_cast<int64_t>(i))[channel] - sum * sum / count;
    const double distance = mean - all.mean;
    const double both = all.count + count;
    all.squares += squares + distance * distance * all.count * count / both;
    all.mean += distance * count / both;
    all.count = both;
  }
  return all;
}

std::vector<double> ShareMoments::packed() const {
  const auto channels = static_cast<size_t>(channels_);
  std::vector<double> packed(2 * channels + 1);
  for (size_t c = 0; c < channels; ++c) {
    const Moments all = joined(static_cast<int64_t>(c));
    const double variance = all.squares / all.count;
    packed[c] = all.mean;
    packed[channels + c] = variance < 0 ? 0 : variance;  // a rounding; NaN stays
    packed.back() = all.count;
  }
  return packed;
}

Norm::Norm(at::ArrayRef<double> moments, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
           kernels::Act act)
    : count_(moments.back()),
      act_(act),
      statistics_(at::empty({3, weight.numel()}, weight.options().requires_grad(false))) {
  const auto channels = static_cast<size_t>(weight.numel());
  auto* mean = statistics_.data_ptr<float>();
  for (size_t c = 0; c < channels; ++c) {
    const double variance = moments[channels + c];
    mean[c] = static_cast<float>(moments[c]);
    mean[channels + c] = static_cast<float>(1 / std::sqrt(variance + epsilon));
    mean[2 * channels + c] = static_cast<float>(variance);
  }
  set_affine(weight, bias);
}

Norm::Norm(const at::Tensor& statistics, double count, const at::Tensor& weight, const at::Tensor& bias,
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

std::vector<double> Norm::normal_sums(const ShareSums& sums) const {
  std::vector<double> total = sums.total();
  for (int64_t channel = 0; channel < channels(); ++channel)
    total[static_cast<size_t>(channels() + channel)] *= static_cast<double>(inverse()[channel]);
  return total;
}

void Norm::set_backward(at::ArrayRef<double> normal_sums) {
  weight_gradient_ = at::empty({channels()}, statistics_.options());
  bias_gradient_ = at::empty({channels()}, statistics_.options());
  a_ = scale_;
  b_.resize(scale_.size());
  c_.resize(scale_.size());
  for (int64_t channel = 0; channel < channels(); ++channel) {
    const auto i = static_cast<size_t>(channel);
    const double sum = normal_sums[i];
    const double normal_sum = normal_sums[i + scale_.size()];
    weight_gradient_.data_ptr<float>()[channel] = static_cast<float>(normal_sum);
    bias_gradient_.data_ptr<float>()[channel] = static_cast<float>(sum);
    // dx = scale * (g - mean(g) - (x - mean) * inverse^2 * mean(g * (x - mean)))
    const double slope = scale_[i] * normal_sum * static_cast<double>(inverse()[channel]) / count_;
    b_[i] = static_cast<float>(-slope);
    c_[i] = static_cast<float>(slope * mean()[channel] - scale_[i] * sum / count_);
  }
}

}  // namespace trireme::nn::fused
