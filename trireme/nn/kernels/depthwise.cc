#include "trireme/nn/kernels/depthwise.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/nn/kernels/depthwise.cc"
#include "trireme/nn/kernels/targets.h"
// After targets.h, which chooses among them.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trireme/nn/kernels/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::nn::kernels::HWY_NAMESPACE {
namespace {

// For one vector of channels the whole kernel is kept in registers: 9 or 25 of AVX-512's 32.

/// The kernel of `part`'s channels, or sums of the same form.
template <int kKernel>
struct Taps {
  Vec at[kKernel * kKernel];
};

/// f(tap) for each place of the kernel, a constant each time: without a loop, so that all of them stay in registers.
template <int kKernel, typename F>
HWY_INLINE void for_each_tap(F f) {
  [&]<int... kTap>(std::integer_sequence<int, kTap...>)
      HWY_ATTR { (f(std::integral_constant<int, kTap>()), ...); }(std::make_integer_sequence<int, kKernel * kKernel>());
}

template <int kKernel, typename Part>
HWY_INLINE Taps<kKernel> load_taps(Part part, const float* weights, int64_t channels) {
  Taps<kKernel> taps;
  for_each_tap<kKernel>([&](auto tap) HWY_ATTR { taps.at[tap] = part.load(weights + tap * channels); });
  return taps;
}

/// f(place of the kernel's corner in the frame, place in the output) for each pixel of the output.
template <typename F>
HWY_INLINE void for_each_pixel(const Depthwise& shape, F f) {
  const int64_t line = shape.frame_width() * shape.channels;
  for (int64_t y = 0; y < shape.out_height(); ++y)
    for (int64_t x = 0; x < shape.out_width(); ++x)
      f(y * shape.stride * line + x * shape.stride * shape.channels, (y * shape.out_width() + x) * shape.channels);
}

template <int kKernel>
void forward_of(const float* frame, const float* weights, const Depthwise& shape, float* out) {
  const int64_t line = shape.frame_width() * shape.channels;
  for_each_vector(shape.channels, [&](auto part, int64_t c) HWY_ATTR {
    const Taps<kKernel> taps = load_taps<kKernel>(part, weights + c, shape.channels);
    for_each_pixel(shape, [&](int64_t from, int64_t to) HWY_ATTR {
      // Two sums, as one would wait for itself.
      Vec sums[2] = {hn::Zero(kTag), hn::Zero(kTag)};
      for_each_tap<kKernel>([&](auto tap) HWY_ATTR {
        const Vec pixel = part.load(frame + from + tap / kKernel * line + tap % kKernel * shape.channels + c);
        sums[tap % 2] = hn::MulAdd(pixel, taps.at[tap], sums[tap % 2]);
      });
      part.store(hn::Add(sums[0], sums[1]), out + to + c);
    });
  });
}

template <int kKernel>
void weight_gradient_of(const float* frame, const float* dy, const Depthwise& shape, float* gradient) {
  const int64_t line = shape.frame_width() * shape.channels;
  for_each_vector(shape.channels, [&](auto part, int64_t c) HWY_ATTR {
    Taps<kKernel> sums = load_taps<kKernel>(part, gradient + c, shape.channels);
    for_each_pixel(shape, [&](int64_t from, int64_t to) HWY_ATTR {
      const Vec grad = part.load(dy + to + c);
      for_each_tap<kKernel>([&](auto tap) HWY_ATTR {
        const Vec pixel = part.load(frame + from + tap / kKernel * line + tap % kKernel * shape.channels + c);
        sums.at[tap] = hn::MulAdd(pixel, grad, sums.at[tap]);
      });
    });
    for_each_tap<kKernel>([&](auto tap) HWY_ATTR { part.store(sums.at[tap], gradient + tap * shape.channels + c); });
  });
}

template <int kKernel>
void input_gradient_of(const float* dy, const float* weights, const Depthwise& shape, float* frame) {
  const int64_t line = shape.frame_width() * shape.channels;
  for_each_vector(shape.channels, [&](auto part, int64_t c) HWY_ATTR {
    const Taps<kKernel> taps = load_taps<kKernel>(part, weights + c, shape.channels);
    for_each_pixel(shape, [&](int64_t from, int64_t to) HWY_ATTR {
      const Vec grad = part.load(dy + to + c);
      for_each_tap<kKernel>([&](auto tap) HWY_ATTR {
        float* target = frame + from + tap / kKernel * line + tap % kKernel * shape.channels + c;
        part.store(hn::MulAdd(grad, taps.at[tap], part.load(target)), target);
      });
    });
  });
}

void Forward3(const float* frame, const float* weights, const Depthwise& shape, float* out) {
  forward_of<3>(frame, weights, shape, out);
}
void Forward5(const float* frame, const float* weights, const Depthwise& shape, float* out) {
  forward_of<5>(frame, weights, shape, out);
}
void WeightGradient3(const float* frame, const float* dy, const Depthwise& shape, float* gradient) {
  weight_gradient_of<3>(frame, dy, shape, gradient);
}
void WeightGradient5(const float* frame, const float* dy, const Depthwise& shape, float* gradient) {
  weight_gradient_of<5>(frame, dy, shape, gradient);
}
void InputGradient3(const float* dy, const float* weights, const Depthwise& shape, float* frame) {
  input_gradient_of<3>(dy, weights, shape, frame);
}
void InputGradient5(const float* dy, const float* weights, const Depthwise& shape, float* frame) {
  input_gradient_of<5>(dy, weights, shape, frame);
}

}  // namespace
}  // namespace trireme::nn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::nn::kernels {

HWY_EXPORT(Forward3);
HWY_EXPORT(Forward5);
HWY_EXPORT(WeightGradient3);
HWY_EXPORT(WeightGradient5);
HWY_EXPORT(InputGradient3);
HWY_EXPORT(InputGradient5);

void depthwise_forward(const float* frame, const float* weights, const Depthwise& shape, float* out) {
  shape.kernel == 3 ? HWY_DYNAMIC_DISPATCH(Forward3)(frame, weights, shape, out)
                    : HWY_DYNAMIC_DISPATCH(Forward5)(frame, weights, shape, out);
}

void add_depthwise_weight_gradient(const float* frame, const float* dy, const Depthwise& shape, float* gradient) {
  shape.kernel == 3 ? HWY_DYNAMIC_DISPATCH(WeightGradient3)(frame, dy, shape, gradient)
                    : HWY_DYNAMIC_DISPATCH(WeightGradient5)(frame, dy, shape, gradient);
}

void add_depthwise_input_gradient(const float* dy, const float* weights, const Depthwise& shape, float* frame) {
  shape.kernel == 3 ? HWY_DYNAMIC_DISPATCH(InputGradient3)(dy, weights, shape, frame)
                    : HWY_DYNAMIC_DISPATCH(InputGradient5)(dy, weights, shape, frame);
}

}  // namespace trireme::nn::kernels
#endif
