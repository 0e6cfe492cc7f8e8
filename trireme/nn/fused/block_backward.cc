#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>

#include <cstring>

#include "trireme/nn/fused/block_parts.h"

namespace trireme::nn::fused {
namespace {

/// Gradients of weights, one set for each share; sum() adds them in the shares' order.
class ShareGradients {
 public:
  ShareGradients(int64_t images, at::IntArrayRef shape, const at::Tensor& like) {
    std::vector<int64_t> sizes = {shares_of(images)};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    all_ = at::zeros(sizes, like.options().requires_grad(false));
  }
  float* of(int64_t share) { return all_.data_ptr<float>() + share * image_size(all_); }
  /// Adds a^T b, where both have `rows` rows.
  void add_product(int64_t share, const float* a, const float* b, int64_t rows) {
    kernels::add_transposed_product(a, all_.size(1), b, all_.size(2), rows, of(share));
  }
  at::Tensor sum() const { return all_.sum(0); }

 private:
  at::Tensor all_;
};

class Backward {
 public:
  Backward(const at::Tensor& dy, const at::Tensor& x, const BlockParameters& parameters, const BlockSettings& settings,
           const BlockState& state, BlockParameters& gradients)
      : dy_(dy),
        x_(x),
        parameters_(parameters),
        settings_(settings),
        state_(state),
        gradients_(gradients),
        sizes_(x, parameters, settings),
        filter_norm_(state.depthwise_norm, sizes_.images * sizes_.out_pixels(), parameters.depthwise_scale,
                     parameters.depthwise_bias, settings.act),
        project_norm_(state.project_norm, sizes_.images * sizes_.out_pixels(), parameters.project_scale,
                      parameters.project_bias, settings.project_act) {
    if (settings.has_expand)
      expand_norm_ = Norm(state.expand_norm, sizes_.images * sizes_.pixels(), parameters.expand_scale,
                          parameters.expand_bias, settings.act);
  }

  at::Tensor run() {
    sum_behind_project();
    project();
    if (settings_.has_gate) gate();
    sum_behind_filter();
    filter();
    if (settings_.has_expand) expand();
    return dx_;
  }

 private:
  const float* image(const at::Tensor& batch, int64_t i) const {
    return batch.const_data_ptr<float>() + i * image_size(batch);
  }

  void sum_behind_project() {
    ShareSums sums(sizes_.images, sizes_.out);
    over_images(sizes_.images, [&](int64_t share, int64_t begin, int64_t end) {
      kernels::backward_sums(image(dy_, begin), image(state_.projected, begin),
                             {(end - begin) * sizes_.out_pixels(), sizes_.out}, through_project(), nullptr,
                             sums.first(share), sums.second(share));
    });
    project_norm_.set_backward(sums);
    gradients_.project_scale = project_norm_.weight_gradient();
    gradients_.project_bias = project_norm_.bias_gradient();
  }

  // A shortcut is added behind it, where there is no activation: can_fuse().
  kernels::BackwardSums through_project() const {
    return {.affine = project_norm_.affine(), .mean = project_norm_.mean()};
  }

  // The gradient of project's weight, and of its input.
  void project() {
    wide_gradient_ = at::empty_like(state_.filtered);
    if (settings_.has_gate) gate_gradient_ = at::zeros_like(state_.gate);
    const int64_t pixels = sizes_.out_pixels();
    const int64_t wide_size = sizes_.filter.out_size();
    const PackedWeight weight(parameters_.project, PackedWeight::Way::backward);
    ShareGradients weights(sizes_.images, {sizes_.out, sizes_.wide}, x_);
    const bool stream = is_streamed(wide_gradient_);
    over_images(sizes_.images, [&](int64_t share, int64_t begin, int64_t end) {
      in_chunks(begin, end, Sizes::chunk(wide_size), [&](int64_t first, int64_t count) {
        const int64_t rows = count * pixels;
        float* out_gradient = scratch(kOut, rows * sizes_.out);
        kernels::backward_input_through(image(dy_, first), image(state_.projected, first), {rows, sizes_.out},
                                        project_norm_.input(), through_project(), out_gradient);
        float* wide = scratch(kWide, rows * sizes_.wide);
        for (int64_t i = 0; i < count; ++i)
          kernels::normalise(image(state_.filtered, first + i), {pixels, sizes_.wide},
                             {.affine = filter_norm_.affine(), .gate = gate_of(first + i)}, wide + i * wide_size);
        weights.add_product(share, out_gradient, wide, rows);
        const Staged to(wide_gradient_, stream, first * wide_size, count * wide_size);
        weight.multiply(out_gradient, rows, to.memory());
        if (settings_.has_gate)
          for (int64_t i = 0; i < count; ++i)
            kernels::add_gate_gradient(to.memory() + i * wide_size, image(state_.filtered, first + i),
                                       {pixels, sizes_.wide}, filter_norm_.affine(),
                                       gate_gradient_.data_ptr<float>() + (first + i) * sizes_.wide);
        to.finish();
      });
    });
    gradients_.project = weights.sum().view_as(parameters_.project);
  }

  // Squeeze and excitation: 0 < gate < 1 is where it is not cut off.
  void gate() {
    const at::Tensor inside = state_.gate.gt(0).logical_and_(state_.gate.lt(1));
    const at::Tensor excited = gate_gradient_.mul(settings_.gate_slope).mul_(inside);
    gradients_.excite = excited.t().mm(state_.narrow).view_as(parameters_.excite);
    gradients_.excite_bias = excited.sum(0);
    const at::Tensor narrow = excited.mm(matrix(parameters_.excite)).mul_(state_.narrow.gt(0));
    gradients_.squeeze = narrow.t().mm(state_.pooled).view_as(parameters_.squeeze);
    gradients_.squeeze_bias = narrow.sum(0);
    pooled_gradient_ = narrow.mm(matrix(parameters_.squeeze)).div_(static_cast<double>(sizes_.out_pixels()));
  }

  // wide_gradient_ becomes the gradient in front of the depthwise convolution's activation.
  void sum_behind_filter() {
    ShareSums sums(sizes_.images, sizes_.wide);
    over_images(sizes_.images, [&](int64_t share, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        auto* gradient = wide_gradient_.data_ptr<float>() + i * sizes_.filter.out_size();
        kernels::backward_sums(
            gradient, image(state_.filtered, i), {sizes_.out_pixels(), sizes_.wide},
            {.affine = filter_norm_.affine(),
             .mean = filter_norm_.mean(),
             .gate = gate_of(i),
             .pooled = settings_.has_gate ? pooled_gradient_.const_data_ptr<float>() + i * sizes_.wide : nullptr},
            gradient, sums.first(share), sums.second(share));
      }
    });
    filter_norm_.set_backward(sums);
    gradients_.depthwise_scale = filter_norm_.weight_gradient();
    gradients_.depthwise_bias = filter_norm_.bias_gradient();
  }

  // Through the depthwise convolution; then, where there is one, through expand's activation.
  void filter() {
    const kernels::Depthwise& shape = sizes_.filter;
    const FilterInput input =
        settings_.has_expand ? FilterInput(state_.expanded, &expand_norm_) : FilterInput(x_, nullptr);
    const at::Tensor weights = taps(parameters_.depthwise);
    const at::Tensor flipped = weights.flip(0);
    ShareGradients taps_gradient(sizes_.images, {settings_.kernel * settings_.kernel, sizes_.wide}, x_);
    ShareSums sums(sizes_.images, sizes_.wide);
    at::Tensor& gradient = settings_.has_expand ? expanded_gradient_ : dx_;
    gradient = at::empty_like(settings_.has_expand ? state_.expanded : x_);
    const int64_t image_floats = image_size(gradient);
    const bool stream = is_streamed(gradient);
    over_images(sizes_.images, [&](int64_t share, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* filtered = scratch(kWideGradient, shape.out_size());
        kernels::backward_input(image(wide_gradient_, i), image(state_.filtered, i), {sizes_.out_pixels(), sizes_.wide},
                                filter_norm_.input(), filtered);
        kernels::add_depthwise_weight_gradient(input.fill(i, shape), filtered, shape, taps_gradient.of(share));
        const Staged to(gradient, stream, i * image_floats, image_floats);
        put_filter_input_gradient(filtered, settings_.stride == 1 ? flipped : weights, to.memory());
        if (settings_.has_expand) {
          kernels::backward_sums(to.memory(), image(state_.expanded, i), {sizes_.pixels(), sizes_.wide},
                                 {.affine = expand_norm_.affine(), .mean = expand_norm_.mean()}, to.memory(),
                                 sums.first(share), sums.second(share));
        } else if (settings_.has_shortcut) {
          add(image(dy_, i), sizes_.pixels() * sizes_.in, to.memory());
        }
        to.finish();
      }
    });
    gradients_.depthwise = taps_gradient.sum().t().contiguous().view_as(parameters_.depthwise);
    if (!settings_.has_expand) return;
    expand_norm_.set_backward(sums);
    gradients_.expand_scale = expand_norm_.weight_gradient();
    gradients_.expand_bias = expand_norm_.bias_gradient();
  }

  /// At stride 1 the convolution of the gradient with the flipped kernel, otherwise each pixel's gradient is spread out.
  void put_filter_input_gradient(const float* filtered, const at::Tensor& weights, float* to) {
    const kernels::Depthwise& shape = sizes_.filter;
    float* frame = scratch(kGradientFrame, shape.frame_size());
    if (shape.stride == 1) {
      frame_as_is(filtered, shape, frame);
      kernels::depthwise_forward(frame, weights.const_data_ptr<float>(), shape, to);
      return;
    }
    std::memset(frame, 0, static_cast<size_t>(shape.frame_size()) * sizeof(float));
    kernels::add_depthwise_input_gradient(filtered, weights.const_data_ptr<float>(), shape, frame);
    const int64_t line = shape.width * shape.channels;
    for (int64_t y = 0; y < shape.height; ++y)
      std::memcpy(to + y * line, frame + shape.inside(y, 0), static_cast<size_t>(line) * sizeof(float));
  }

  static void frame_as_is(const float* image, const kernels::Depthwise& shape, float* frame) {
    const int64_t line = shape.width * shape.channels;
    std::memset(frame, 0, static_cast<size_t>(shape.frame_size()) * sizeof(float));
    for (int64_t y = 0; y < shape.height; ++y)
      std::memcpy(frame + shape.inside(y, 0), image + y * line, static_cast<size_t>(line) * sizeof(float));
  }

  static void add(const float* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  }

  void expand() {
    dx_ = settings_.has_shortcut ? dy_.clone() : at::empty_like(x_);
    const PackedWeight weight(parameters_.expand, PackedWeight::Way::backward);
    ShareGradients weights(sizes_.images, {sizes_.wide, sizes_.in}, x_);
    over_images(sizes_.images, [&](int64_t share, int64_t begin, int64_t end) {
      in_chunks(begin, end, Sizes::chunk(sizes_.pixels() * sizes_.wide), [&](int64_t first, int64_t count) {
        const int64_t rows = count * sizes_.pixels();
        float* wide = scratch(kWideGradient, rows * sizes_.wide);
        kernels::backward_input(image(expanded_gradient_, first), image(state_.expanded, first), {rows, sizes_.wide},
                                expand_norm_.input(), wide);
        weights.add_product(share, wide, image(x_, first), rows);
        weight.multiply(wide, rows, dx_.data_ptr<float>() + first * sizes_.pixels() * sizes_.in,
                        settings_.has_shortcut ? kernels::Into::add : kernels::Into::replace);
      });
    });
    gradients_.expand = weights.sum().view_as(parameters_.expand);
  }

  const float* gate_of(int64_t image) const {
    return settings_.has_gate ? state_.gate.const_data_ptr<float>() + image * sizes_.wide : nullptr;
  }

  const at::Tensor& dy_;
  const at::Tensor& x_;
  const BlockParameters& parameters_;
  const BlockSettings& settings_;
  const BlockState& state_;
  BlockParameters& gradients_;
  Sizes sizes_;
  Norm expand_norm_, filter_norm_, project_norm_;
  at::Tensor wide_gradient_, gate_gradient_, pooled_gradient_, expanded_gradient_, dx_;
};

}  // namespace

at::Tensor block_backward(const at::Tensor& dy, const at::Tensor& x, const BlockParameters& parameters,
                          const BlockSettings& settings, const BlockState& state, BlockParameters& gradients) {
  const at::AutoDispatchBelowAutograd no_gradients;
  const at::DisableRecordFunctionGuard unseen;
  return Backward(dy, x, parameters, settings, state, gradients).run();
}

}  // namespace trireme::nn::fused
