#include "trireme/nn/kernels/rows.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/nn/kernels/rows.cc"
#include "trireme/nn/kernels/targets.h"
// After targets.h, which chooses among them.
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Once for each kind of vectors, as vectors.h.
#include <hwy/contrib/math/math-inl.h>

#include "trireme/nn/kernels/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::nn::kernels::HWY_NAMESPACE {
namespace {

constexpr int64_t kRowsInFloat = 32;  // summed in float before they go into a double

/// 1 / (1 + exp(-z)). Below -80 it is 1.8e-35, not 0: exp() must not overflow.
HWY_INLINE Vec sigmoid(Vec z) {
  const Vec one = hn::Set(kTag, 1.0F);
  return hn::Div(one, hn::Add(one, hn::Exp(kTag, hn::Min(hn::Neg(z), hn::Set(kTag, 80.0F)))));
}

// NaN stays NaN in both directions, as in libtorch: a maximum with 0 would hide it.
template <Act kAct>
HWY_INLINE Vec activated(Vec z) {
  if constexpr (kAct == Act::relu) return hn::IfThenZeroElse(hn::Lt(z, hn::Zero(kTag)), z);
  if constexpr (kAct == Act::relu6) {
    const Vec most = hn::Set(kTag, 6.0F);
    return hn::IfThenElse(hn::Gt(z, most), most, hn::IfThenZeroElse(hn::Lt(z, hn::Zero(kTag)), z));
  }
  if constexpr (kAct == Act::silu) return hn::Mul(z, sigmoid(z));
  if constexpr (kAct == Act::hardswish) {
    const Vec gate = hn::Min(hn::Max(hn::Add(z, hn::Set(kTag, 3.0F)), hn::Zero(kTag)), hn::Set(kTag, 6.0F));
    return hn::Mul(hn::Mul(z, gate), hn::Set(kTag, 1.0F / 6));
  }
  return z;
}

/// grad * activation'(z)
template <Act kAct>
HWY_INLINE Vec passed(Vec grad, Vec z) {
  if constexpr (kAct == Act::relu) return hn::IfThenZeroElse(hn::Le(z, hn::Zero(kTag)), grad);
  if constexpr (kAct == Act::relu6)
    return hn::IfThenZeroElse(hn::Or(hn::Le(z, hn::Zero(kTag)), hn::Ge(z, hn::Set(kTag, 6.0F))), grad);
  if constexpr (kAct == Act::silu) {
    const Vec one = hn::Set(kTag, 1.0F), gate = sigmoid(z);
    return hn::Mul(hn::Mul(grad, gate), hn::MulAdd(z, hn::Sub(one, gate), one));
  }
  if constexpr (kAct == Act::hardswish) {
    const Vec slope = hn::MulAdd(z, hn::Set(kTag, 1.0F / 3), hn::Set(kTag, 0.5F));
    const Vec inside = hn::IfThenElse(hn::Gt(z, hn::Set(kTag, 3.0F)), grad, hn::Mul(grad, slope));
    return hn::IfThenZeroElse(hn::Le(z, hn::Set(kTag, -3.0F)), inside);
  }
  return grad;
}

template <typename Part>
HWY_INLINE Vec affine_of(Part part, const Affine& affine, const float* x, int64_t c) {
  return hn::MulAdd(part.load(x + c), part.load(affine.scale + c), part.load(affine.shift + c));
}

/// Blocks of rows are summed in float, then added to doubles: `step(row, sums)` for each row, sums[c] and, where there
/// are two, sums[channels + c].
template <int kSums, typename Step>
HWY_INLINE void sum_in_blocks(Rows shape, const std::array<double*, kSums>& totals, Step step) {
  thread_local std::vector<float> block;
  block.resize(static_cast<size_t>(kSums * shape.channels));
  for (int64_t begin = 0; begin < shape.rows; begin += kRowsInFloat) {
    std::fill(block.begin(), block.end(), 0.0F);
    const int64_t end = std::min(begin + kRowsInFloat, shape.rows);
    for (int64_t row = begin; row < end; ++row) step(row, block.data());
    for (int i = 0; i < kSums; ++i)
      for (int64_t c = 0; c < shape.channels; ++c)
        totals[static_cast<size_t>(i)][c] += static_cast<double>(block[static_cast<size_t>(i * shape.channels + c)]);
  }
}

void AddSums(const float* x, Rows shape, const float* pivot, double* sum, double* squares) {
  const int64_t channels = shape.channels;
  sum_in_blocks<2>(shape, {sum, squares}, [=](int64_t row, float* sums) HWY_ATTR {
    const float* at = x + row * channels;
    for_each_vector(channels, [=](auto part, int64_t c) HWY_ATTR {
      const Vec value = hn::Sub(part.load(at + c), part.load(pivot + c));
      part.store(hn::Add(part.load(sums + c), value), sums + c);
      float* square = sums + channels + c;
      part.store(hn::MulAdd(value, value, part.load(square)), square);
    });
  });
}

template <Act kAct, bool kStream>
void normalise_rows(const float* x, Rows shape, const Normalise& how, float* y) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t at = row * shape.channels;
    for_each_vector(shape.channels, [=, &how](auto part, int64_t c) HWY_ATTR {
      Vec z = affine_of(part, how.affine, x + at, c);
      if (how.residual != nullptr) z = hn::Add(z, part.load(how.residual + at + c));
      z = activated<kAct>(z);
      if (how.gate != nullptr) z = hn::Mul(z, part.load(how.gate + c));
      part.template put<kStream>(z, y + at + c);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <Act kAct>
void add_activated(const float* x, const float* dy, Rows shape, const Affine& affine, float* sum) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t at = row * shape.channels;
    for_each_vector(shape.channels, [=, &affine](auto part, int64_t c) HWY_ATTR {
      const Vec value = activated<kAct>(affine_of(part, affine, x + at, c));
      const Vec factor = dy == nullptr ? hn::Set(kTag, 1.0F) : part.load(dy + at + c);
      part.store(hn::MulAdd(value, factor, part.load(sum + c)), sum + c);
    });
  }
}

/// The gradient in front of the activation.
template <Act kAct, typename Part>
HWY_INLINE Vec gradient_before(Part part, const float* dy, const float* x, const BackwardSums& how, int64_t at,
                               int64_t c) {
  Vec grad = part.load(dy + at + c);
  if (how.gate != nullptr) grad = hn::Mul(grad, part.load(how.gate + c));
  if (how.pooled != nullptr) grad = hn::Add(grad, part.load(how.pooled + c));
  if constexpr (kAct == Act::none) return grad;
  Vec z = affine_of(part, how.affine, x + at, c);
  if (how.residual != nullptr) z = hn::Add(z, part.load(how.residual + at + c));
  return passed<kAct>(grad, z);
}

template <Act kAct>
void backward_sums_of(const float* dy, const float* x, Rows shape, const BackwardSums& how, float* g, double* sum,
                      double* centred) {
  const int64_t channels = shape.channels;
  sum_in_blocks<2>(shape, {sum, centred}, [=, &how](int64_t row, float* sums) HWY_ATTR {
    const int64_t at = row * channels;
    for_each_vector(channels, [=, &how](auto part, int64_t c) HWY_ATTR {
      const Vec grad = gradient_before<kAct>(part, dy, x, how, at, c);
      if (g != nullptr) part.store(grad, g + at + c);
      part.store(hn::Add(part.load(sums + c), grad), sums + c);
      const Vec distance = hn::Sub(part.load(x + at + c), part.load(how.mean + c));
      float* product = sums + channels + c;
      part.store(hn::MulAdd(grad, distance, part.load(product)), product);
    });
  });
}

template <Act kAct, bool kStream>
void backward_input_of(const float* dy, const float* x, Rows shape, const BackwardInput& how,
                       const BackwardSums& through, float* dx) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    const int64_t at = row * shape.channels;
    for_each_vector(shape.channels, [=, &how, &through](auto part, int64_t c) HWY_ATTR {
      const Vec grad = gradient_before<kAct>(part, dy, x, through, at, c);
      const Vec line = hn::MulAdd(part.load(x + at + c), part.load(how.b + c), part.load(how.c + c));
      part.template put<kStream>(hn::MulAdd(grad, part.load(how.a + c), line), dx + at + c);
    });
  }
  if (kStream) hwy::FlushStream();
}

/// Calls f with the activation as a constant, so that no loop asks for it.
template <typename F>
HWY_INLINE void with_act(Act act, F f) {
  switch (act) {
    case Act::none:
      return f(std::integral_constant<Act, Act::none>());
    case Act::relu:
      return f(std::integral_constant<Act, Act::relu>());
    case Act::relu6:
      return f(std::integral_constant<Act, Act::relu6>());
    case Act::hardswish:
      return f(std::integral_constant<Act, Act::hardswish>());
    case Act::silu:
      return f(std::integral_constant<Act, Act::silu>());
  }
}

/// Past the caches only whole, aligned vectors can go.
HWY_INLINE bool can_stream(const float* to, Rows shape) {
  const size_t bytes = sizeof(float) * hn::Lanes(kTag);
  return reinterpret_cast<uintptr_t>(to) % bytes == 0 &&
         static_cast<size_t>(shape.channels) * sizeof(float) % bytes == 0;
}

void NormaliseRows(const float* x, Rows shape, const Normalise& how, float* y) {
  with_act(how.affine.act, [&](auto act) HWY_ATTR {
    how.stream&& can_stream(y, shape) ? normalise_rows<act(), true>(x, shape, how, y)
                                      : normalise_rows<act(), false>(x, shape, how, y);
  });
}

void AddActivated(const float* x, const float* dy, Rows shape, const Affine& affine, float* sum) {
  with_act(affine.act, [&](auto act) HWY_ATTR { add_activated<act()>(x, dy, shape, affine, sum); });
}

void BackwardSumsOf(const float* dy, const float* x, Rows shape, const BackwardSums& how, float* g, double* sum,
                    double* centred) {
  with_act(how.affine.act, [&](auto act) HWY_ATTR { backward_sums_of<act()>(dy, x, shape, how, g, sum, centred); });
}

void BackwardInputOf(const float* dy, const float* x, Rows shape, const BackwardInput& how, const BackwardSums& through,
                     float* dx) {
  with_act(through.affine.act, [&](auto act) HWY_ATTR {
    how.stream&& can_stream(dx, shape) ? backward_input_of<act(), true>(dy, x, shape, how, through, dx)
                                       : backward_input_of<act(), false>(dy, x, shape, how, through, dx);
  });
}

void CopyPastCaches(const float* from, int64_t count, float* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(kTag));
  const int64_t bytes = lanes * static_cast<int64_t>(sizeof(float));
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to)) % bytes;
  int64_t i = 0;
  for (; i < count && i * static_cast<int64_t>(sizeof(float)) < (bytes - misplaced) % bytes; ++i) to[i] = from[i];
  for (; i + lanes <= count; i += lanes) hn::Stream(hn::LoadU(kTag, from + i), kTag, to + i);
  for (; i < count; ++i) to[i] = from[i];
  hwy::FlushStream();
}

}  // namespace
}  // namespace trireme::nn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::nn::kernels {

HWY_EXPORT(AddSums);
HWY_EXPORT(NormaliseRows);
HWY_EXPORT(AddActivated);
HWY_EXPORT(BackwardSumsOf);
HWY_EXPORT(BackwardInputOf);
HWY_EXPORT(CopyPastCaches);

namespace {

/// Several rows taken as one, when they are short: whole vectors only, and sums that do not wait for each other. What
/// there is one of for each channel is repeated.
class Widened {
 public:
  explicit Widened(Rows shape) : factor_(factor(shape)), shape_(shape), buffer_(buffer()) { buffer_.clear(); }
  Rows wide() const { return {shape_.rows / factor_, shape_.channels * factor_}; }
  Rows rest() const { return {shape_.rows % factor_, shape_.channels}; }
  /// Where the rest begins.
  int64_t behind() const { return (shape_.rows - rest().rows) * shape_.channels; }

  const float* repeat(const float* channels) {
    if (factor_ == 1 || channels == nullptr) return channels;
    const size_t begin = buffer_.size();
    buffer_.reserve(kArrays * static_cast<size_t>(wide().channels));  // once: pointers into it stay
    for (int64_t i = 0; i < factor_; ++i) buffer_.insert(buffer_.end(), channels, channels + shape_.channels);
    return buffer_.data() + begin;
  }
  Affine repeat(const Affine& affine) { return {repeat(affine.scale), repeat(affine.shift), affine.act}; }
  BackwardSums repeat(const BackwardSums& how) {
    return {repeat(how.affine), repeat(how.mean), how.residual, repeat(how.gate), repeat(how.pooled)};
  }
  BackwardInput repeat(const BackwardInput& how) { return {repeat(how.a), repeat(how.b), repeat(how.c), how.stream}; }

  /// Zeros to sum into; fold() adds them to the channels they stand for.
  template <typename Number>
  Number* zeros(int count) {
    thread_local std::vector<Number> sums;
    sums.assign(static_cast<size_t>(count * wide().channels), Number(0));
    return sums.data();
  }
  template <typename Number>
  void fold(const Number* wide_sums, Number* sums) const {
    for (int64_t i = 0; i < wide().channels; ++i) sums[i % shape_.channels] += wide_sums[i];
  }

 private:
  static constexpr int64_t kShort = 192;
  static constexpr int64_t kVector = 16;
  static constexpr size_t kArrays = 8;

  static int64_t factor(Rows shape) {
    if (shape.channels >= kShort) return 1;
    const int64_t aligned = kVector / std::gcd(shape.channels, kVector);
    const int64_t factor = (kShort / (shape.channels * aligned) + 1) * aligned;
    return shape.rows >= 2 * factor ? factor : 1;
  }
  static std::vector<float>& buffer() {
    thread_local std::vector<float> floats;
    return floats;
  }

  int64_t factor_;
  Rows shape_;
  std::vector<float>& buffer_;
};

const float* behind(const float* values, int64_t offset) {
  return values == nullptr ? nullptr : values + offset;
}
float* behind(float* values, int64_t offset) {
  return values == nullptr ? nullptr : values + offset;
}

}  // namespace

void add_sums(const float* x, Rows shape, const float* pivot, double* sum, double* squares) {
  Widened widened(shape);
  double* sums = widened.zeros<double>(2);
  const Rows wide = widened.wide();
  HWY_DYNAMIC_DISPATCH(AddSums)(x, wide, widened.repeat(pivot), sums, sums + wide.channels);
  widened.fold(sums, sum);
  widened.fold(sums + wide.channels, squares);
  HWY_DYNAMIC_DISPATCH(AddSums)(x + widened.behind(), widened.rest(), pivot, sum, squares);
}

void normalise(const float* x, Rows shape, const Normalise& how, float* y) {
  Widened widened(shape);
  Normalise rest = how;
  rest.residual = behind(how.residual, widened.behind());
  const Normalise wide = {widened.repeat(how.affine), how.residual, widened.repeat(how.gate), how.stream};
  HWY_DYNAMIC_DISPATCH(NormaliseRows)(x, widened.wide(), wide, y);
  HWY_DYNAMIC_DISPATCH(NormaliseRows)(x + widened.behind(), widened.rest(), rest, y + widened.behind());
}

void add_activated_sums(const float* x, Rows shape, const Affine& affine, float* sum) {
  add_gate_gradient(nullptr, x, shape, affine, sum);
}

void add_gate_gradient(const float* dy, const float* x, Rows shape, const Affine& affine, float* sum) {
  Widened widened(shape);
  auto* sums = widened.zeros<float>(1);
  HWY_DYNAMIC_DISPATCH(AddActivated)(x, dy, widened.wide(), widened.repeat(affine), sums);
  widened.fold(sums, sum);
  HWY_DYNAMIC_DISPATCH(AddActivated)
  (x + widened.behind(), behind(dy, widened.behind()), widened.rest(), affine, sum);
}

void backward_sums(const float* dy, const float* x, Rows shape, const BackwardSums& how, float* g, double* sum,
                   double* centred) {
  Widened widened(shape);
  double* sums = widened.zeros<double>(2);
  const Rows wide = widened.wide();
  HWY_DYNAMIC_DISPATCH(BackwardSumsOf)(dy, x, wide, widened.repeat(how), g, sums, sums + wide.channels);
  widened.fold(sums, sum);
  widened.fold(sums + wide.channels, centred);
  const int64_t offset = widened.behind();
  BackwardSums rest = how;
  rest.residual = behind(how.residual, offset);
  HWY_DYNAMIC_DISPATCH(BackwardSumsOf)
  (dy + offset, x + offset, widened.rest(), rest, behind(g, offset), sum, centred);
}

void backward_input(const float* g, const float* x, Rows shape, const BackwardInput& how, float* dx) {
  backward_input_through(g, x, shape, how, {}, dx);
}

void backward_input_through(const float* dy, const float* x, Rows shape, const BackwardInput& how,
                            const BackwardSums& through, float* dx) {
  Widened widened(shape);
  const int64_t offset = widened.behind();
  const BackwardInput wide = widened.repeat(how);
  HWY_DYNAMIC_DISPATCH(BackwardInputOf)(dy, x, widened.wide(), wide, widened.repeat(through), dx);
  BackwardSums rest = through;
  rest.residual = behind(through.residual, offset);
  HWY_DYNAMIC_DISPATCH(BackwardInputOf)(dy + offset, x + offset, widened.rest(), how, rest, dx + offset);
}

void copy_past_caches(const float* from, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(CopyPastCaches)(from, count, to);
}

}  // namespace trireme::nn::kernels
#endif
