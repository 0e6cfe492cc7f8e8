#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include "trireme/nn/fused/block_parts.h"

namespace trireme::nn::fused {
namespace {

class Forward {
 public:
  Forward(const at::Tensor& x, const BlockParameters& parameters, const BlockSettings& settings, BlockState& state)
      : x_(x), parameters_(parameters), settings_(settings), state_(state), sizes_(x, parameters, settings) {}

  at::Tensor run() {
    if (settings_.has_expand) expand();
    filter();
    if (settings_.has_gate) gate();
    project();
    return finish();
  }

 private:
  void expand() {
    const auto& [images, in, wide, out, filter] = sizes_;
    state_.expanded = image_batch(images, wide, filter.height, filter.width, x_);
    const PackedWeight weight(parameters_.expand, PackedWeight::Way::forward);
    ShareMoments moments(images, wide);
    const bool stream = is_streamed(state_.expanded);
    over_images(images, [&](int64_t share, int64_t begin, int64_t end) {
      in_chunks(begin, end, Sizes::chunk(sizes_.pixels() * wide), [&](int64_t first, int64_t count) {
        const int64_t rows = count * sizes_.pixels();
        const Staged to(state_.expanded, stream, first * sizes_.pixels() * wide, rows * wide);
        weight.multiply(x_.const_data_ptr<float>() + first * sizes_.pixels() * in, rows, to.memory());
        moments.add(share, to.memory(), rows);
        to.finish();
      });
    });
    expand_norm_ = Norm(moments, parameters_.expand_scale, parameters_.expand_bias, settings_.epsilon, settings_.act);
    state_.expand_norm = expand_norm_.statistics();
  }

  void filter() {
    const kernels::Depthwise& shape = sizes_.filter;
    const FilterInput input =
        settings_.has_expand ? FilterInput(state_.expanded, &expand_norm_) : FilterInput(x_, nullptr);
    state_.filtered = image_batch(sizes_.images, sizes_.wide, shape.out_height(), shape.out_width(), x_);
    const at::Tensor weights = taps(parameters_.depthwise);
    ShareMoments moments(sizes_.images, sizes_.wide);
    const bool stream = is_streamed(state_.filtered);
    over_images(sizes_.images, [&](int64_t share, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Staged to(state_.filtered, stream, i * shape.out_size(), shape.out_size());
        kernels::depthwise_forward(input.fill(i, shape), weights.const_data_ptr<float>(), shape, to.memory());
        moments.add(share, to.memory(), sizes_.out_pixels());
        to.finish();
      }
    });
    filter_norm_ =
        Norm(moments, parameters_.depthwise_scale, parameters_.depthwise_bias, settings_.epsilon, settings_.act);
    state_.depthwise_norm = filter_norm_.statistics();
  }

  void gate() {
    state_.pooled = at::zeros({sizes_.images, sizes_.wide}, x_.options().requires_grad(false));
    over_images(sizes_.images, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        kernels::add_activated_sums(state_.filtered.const_data_ptr<float>() + i * sizes_.filter.out_size(),
                                    {sizes_.out_pixels(), sizes_.wide}, filter_norm_.affine(),
                                    state_.pooled.data_ptr<float>() + i * sizes_.wide);
    });
    state_.pooled.div_(static_cast<double>(sizes_.out_pixels()));
    state_.narrow = at::addmm(parameters_.squeeze_bias, state_.pooled, matrix(parameters_.squeeze).t()).relu_();
    state_.gate = at::addmm(parameters_.excite_bias, state_.narrow, matrix(parameters_.excite).t());
    state_.gate.mul_(settings_.gate_slope).add_(0.5).clamp_(0, 1);
  }

  void project() {
    const int64_t pixels = sizes_.out_pixels();
    state_.projected =
        image_batch(sizes_.images, sizes_.out, sizes_.filter.out_height(), sizes_.filter.out_width(), x_);
    const PackedWeight weight(parameters_.project, PackedWeight::Way::forward);
    ShareMoments moments(sizes_.images, sizes_.out);
    over_images(sizes_.images, [&](int64_t share, int64_t begin, int64_t end) {
      in_chunks(begin, end, Sizes::chunk(sizes_.filter.out_size()), [&](int64_t first, int64_t count) {
        float* to = state_.projected.data_ptr<float>() + first * pixels * sizes_.out;
        float* wide = scratch(kWide, count * sizes_.filter.out_size());
        for (int64_t i = 0; i < count; ++i)
          kernels::normalise(state_.filtered.const_data_ptr<float>() + (first + i) * sizes_.filter.out_size(),
                             {pixels, sizes_.wide}, {.affine = filter_norm_.affine(), .gate = gate_of(first + i)},
                             wide + i * sizes_.filter.out_size());
        weight.multiply(wide, count * pixels, to);
        moments.add(share, to, count * pixels);
      });
    });
    project_norm_ =
        Norm(moments, parameters_.project_scale, parameters_.project_bias, settings_.epsilon, settings_.project_act);
    state_.project_norm = project_norm_.statistics();
  }

  at::Tensor finish() {
    at::Tensor y = at::empty_like(state_.projected);
    const int64_t size = sizes_.out_pixels() * sizes_.out;
    const bool stream = is_streamed(y);
    over_images(sizes_.images, [&](int64_t, int64_t begin, int64_t end) {
      kernels::normalise(state_.projected.const_data_ptr<float>() + begin * size,
                         {(end - begin) * sizes_.out_pixels(), sizes_.out},
                         {.affine = project_norm_.affine(),
                          .residual = settings_.has_shortcut ? x_.const_data_ptr<float>() + begin * size : nullptr,
                          .stream = stream},
                         y.data_ptr<float>() + begin * size);
    });
    return y;
  }

  const float* gate_of(int64_t image) const {
    return settings_.has_gate ? state_.gate.const_data_ptr<float>() + image * sizes_.wide : nullptr;
  }

  const at::Tensor& x_;
  const BlockParameters& parameters_;
  const BlockSettings& settings_;
  BlockState& state_;
  Sizes sizes_;
  Norm expand_norm_, filter_norm_, project_norm_;
};

}  // namespace

at::Tensor block_forward(const at::Tensor& x, const BlockParameters& parameters, const BlockSettings& settings,
                         BlockState& state) {
  const at::AutoDispatchBelowAutograd no_gradients;
  const at::DisableRecordFunctionGuard unseen;
  return Forward(x, parameters, settings, state).run();
}

}  // namespace trireme::nn::fused
