// The arithmetic of a planned resize: across each row that is needed, then down over those rows.
//
// Words: `across` makes one source row as wide as the result; `down` makes one row of the result out of several of
// those, which a ring keeps until no later row asks for them. Three ways to do both:
//   bilinear  OpenCV's: 16 bit numbers with 11 bit weights and its roundings, so that results are equal to the bit
//   floats    OpenCV's bicubic, rounded at the end
//   stepwise  Pillow's: whole numbers with 22 bit weights, rounded to 8 bit between the two as well
#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/data/image/simd.h"
#include "trireme/data/image/taps.h"

namespace trireme::image {
namespace {

constexpr int kWeightBits = 11;  // OpenCV's
constexpr float kWeightOne = 1 << kWeightBits;
constexpr int kStepBits = 22;  // Pillow's
constexpr int32_t kStepHalf = 1 << (kStepBits - 1);
constexpr int kSlack = 8;  // elements behind a row that may be overwritten

[[gnu::always_inline]] inline Float4 load(const uint8_t* pixel) {
  return __builtin_convertvector(load_pixel(pixel), Float4);
}

[[gnu::always_inline]] inline Float4 broadcast(float x) {
  return Float4{x, x, x, x};
}

[[gnu::always_inline]] inline uint8_t byte_of(int32_t value) {
  return static_cast<uint8_t>(std::clamp(value, 0, 255));
}

/// Stores four, of which the fourth is overwritten by the next pixel.
template <typename T, typename Vector>
[[gnu::always_inline]] inline void store(T* out, const Vector& pixel) {
  std::memcpy(out, &pixel, sizeof(pixel));
}

/// For a source of one column.
void across_one(const uint8_t* source, const Taps& x, int16_t* out) {
  for (int i = 0; i < x.size() * kChannels; ++i)
    out[i] = static_cast<int16_t>(source[i % kChannels] * (static_cast<int>(kWeightOne) / 16));
}

/// `weights`: two for each new pixel, in 11 bits.
TRIREME_WIDE void across_bilinear(const uint8_t* source, int origin, const Taps& x, const int16_t* weights,
                                  int16_t* out) {
  if (x.count == 1) return across_one(source, x, out);
  const int* start = x.start.data();
  for (int i = 0, size = x.size(); i < size; ++i) {
    int32_t two = 0;
    std::memcpy(&two, weights + 2 * i, sizeof(two));
    const auto weight = reinterpret_cast<Short8>(Int4{two, two, two, two});
    // The sum over 16 fits 16 bits and is cut, not rounded, as OpenCV does.
    const Int4 sum = dot_pairs(load_pixel_pair(source + (start[i] - origin) * kChannels), weight);
    store(out + i * kChannels, __builtin_convertvector(sum >> 4, Short4));
  }
}

TRIREME_WIDE void down_bilinear(const int16_t* a, const int16_t* b, int weight_a, int weight_b, int count,
                                uint8_t* out) {
  const auto wa = static_cast<int16_t>(weight_a);
  const auto wb = static_cast<int16_t>(weight_b);
  for (int i = 0; i < count; ++i) {
    const auto high_a = static_cast<int16_t>((a[i] * wa) >> 16);
    const auto high_b = static_cast<int16_t>((b[i] * wb) >> 16);
    out[i] = static_cast<uint8_t>((high_a + high_b + 2) >> 2);
  }
}

TRIREME_WIDE void across_floats(const uint8_t* source, int origin, const Taps& x, float* out) {
  const int count = x.count;
  const float* weight = x.weights.data();
  for (int i = 0, size = x.size(); i < size; ++i, weight += count) {
    const uint8_t* pixel = source + (x.start[static_cast<size_t>(i)] - origin) * kChannels;
    Float4 sum = load(pixel) * broadcast(weight[0]);
    for (int k = 1; k < count; ++k) sum += load(pixel + k * kChannels) * broadcast(weight[k]);
    store(out + i * kChannels, sum);
  }
}

TRIREME_WIDE void add_row(const float* row, float weight, int count, float* sum) {
  for (int i = 0; i < count; ++i) sum[i] += row[i] * weight;
}

TRIREME_WIDE void to_bytes(const float* row, int count, uint8_t* out) {
  for (int i = 0; i < count; ++i) {
    const float raised = std::min(std::max(row[i], 0.0F), 255.0F) + 0.5F;  // to be cut: lround would not vectorise
    out[i] = static_cast<uint8_t>(static_cast<int>(raised));
  }
}

TRIREME_WIDE void across_stepwise(const uint8_t* source, int origin, const Taps& x, const int32_t* weight,
                                  uint8_t* out) {
  const int count = x.count;
  for (int i = 0, size = x.size(); i < size; ++i, weight += count) {
    const uint8_t* pixel = source + (x.start[static_cast<size_t>(i)] - origin) * kChannels;
    Int4 sum{kStepHalf, kStepHalf, kStepHalf, kStepHalf};
    for (int k = 0; k < count; ++k)
      sum += load_pixel(pixel + k * kChannels) * Int4{weight[k], weight[k], weight[k], weight[k]};
    for (int c = 0; c < kChannels; ++c) out[i * kChannels + c] = byte_of(sum[c] >> kStepBits);
  }
}

TRIREME_WIDE void add_row(const uint8_t* row, int32_t weight, int count, int32_t* sum) {
  for (int i = 0; i < count; ++i) sum[i] += row[i] * weight;
}

TRIREME_WIDE void to_bytes(const int32_t* row, int count, uint8_t* out) {
  for (int i = 0; i < count; ++i) out[i] = byte_of(row[i] >> kStepBits);
}

/// Rows that were made as wide as the result, each in the place its number gives it.
template <typename T>
class Ring {
 public:
  void reset(int rows, int elements) {
    pitch_ = static_cast<size_t>(elements) + kSlack;
    held_.assign(static_cast<size_t>(rows), -1);
    data_.resize(held_.size() * pitch_);
  }

  /// Source row `y`, made by `across(y, out)` unless it is there.
  template <typename Across>
  const T* row(int y, const Across& across) {
    const size_t place = static_cast<size_t>(y) % held_.size();
    T* out = data_.data() + place * pitch_;
    if (held_[place] != y) across(y, out);
    held_[place] = y;
    return out;
  }

 private:
  std::vector<T> data_;
  std::vector<int> held_;
  size_t pitch_ = 0;
};

/// The rows of a view by the numbers of the whole source, each followed by at least two readable bytes.
class Rows {
 public:
  Rows(const View& source, const Region& origin, std::vector<uint8_t>& last) : source_(source), origin_(origin) {
    const size_t bytes = static_cast<size_t>(source.width) * kChannels;
    last.resize(bytes + kSlack);
    std::memcpy(last.data(), source.row(source.height - 1), bytes);
    last_ = last.data();
  }

  const uint8_t* operator()(int y) const {
    const int inside = y - origin_.y;
    return inside + 1 == source_.height ? last_ : source_.row(inside);
  }
  /// The number of the first pixel in each row.
  int left() const { return origin_.x; }

 private:
  View source_;
  Region origin_;
  const uint8_t* last_ = nullptr;
};

struct Scratch {
  Ring<int16_t> shorts;
  std::vector<int16_t> short_weights;
  Ring<float> floats;
  Ring<uint8_t> bytes;
  std::vector<float> sum;
  std::vector<int32_t> whole_sum;
  std::vector<int32_t> whole_weights;
  std::vector<uint8_t> last_row;
};

int16_t short_weight(float weight) {
  return static_cast<int16_t>(weight * kWeightOne);  // exact: the plan has rounded it to these bits
}

void resample_bilinear(const Rows& rows, const Taps& x, const Taps& y, Scratch& scratch, Image& out) {
  const int elements = x.size() * kChannels;
  scratch.shorts.reset(2, elements);
  scratch.short_weights.resize(x.weights.size());
  std::transform(x.weights.begin(), x.weights.end(), scratch.short_weights.begin(), short_weight);
  const auto across = [&](int row, int16_t* into) {
    across_bilinear(rows(row), rows.left(), x, scratch.short_weights.data(), into);
  };
  for (int i = 0; i < y.size(); ++i) {
    const int start = y.start[static_cast<size_t>(i)];
    const int16_t* a = scratch.shorts.row(std::clamp(start, 0, y.length - 1), across);
    const int16_t* b = scratch.shorts.row(std::clamp(start + 1, 0, y.length - 1), across);
    down_bilinear(a, b, short_weight(y.weight(i)[0]), short_weight(y.weight(i)[1]), elements, out.row(i));
  }
}

void resample_floats(const Rows& rows, const Taps& x, const Taps& y, Scratch& scratch, Image& out) {
  const int elements = x.size() * kChannels;
  scratch.floats.reset(y.count, elements);
  const auto across = [&](int row, float* into) { across_floats(rows(row), rows.left(), x, into); };
  for (int i = 0; i < y.size(); ++i) {
    scratch.sum.assign(static_cast<size_t>(elements), 0.0F);
    for (int k = 0; k < y.count; ++k) {
      if (y.weight(i)[k] == 0) continue;  // padding: some new pixels have fewer taps than others
      const float* row = scratch.floats.row(y.start[static_cast<size_t>(i)] + k, across);
      add_row(row, y.weight(i)[k], elements, scratch.sum.data());
    }
    to_bytes(scratch.sum.data(), elements, out.row(i));
  }
}

int32_t whole_weight(float weight) {
  return static_cast<int32_t>(weight * (1 << kStepBits));  // exact: the plan has rounded it to these bits
}

void resample_stepwise(const Rows& rows, const Taps& x, const Taps& y, Scratch& scratch, Image& out) {
  const int elements = x.size() * kChannels;
  scratch.bytes.reset(y.count, elements);
  scratch.whole_weights.resize(x.weights.size());
  std::transform(x.weights.begin(), x.weights.end(), scratch.whole_weights.begin(), whole_weight);
  const auto across = [&](int row, uint8_t* into) {
    across_stepwise(rows(row), rows.left(), x, scratch.whole_weights.data(), into);
  };
  for (int i = 0; i < y.size(); ++i) {
    scratch.whole_sum.assign(static_cast<size_t>(elements), kStepHalf);
    for (int k = 0; k < y.count; ++k) {
      if (y.weight(i)[k] == 0) continue;  // padding, as above
      const uint8_t* row = scratch.bytes.row(y.start[static_cast<size_t>(i)] + k, across);
      add_row(row, whole_weight(y.weight(i)[k]), elements, scratch.whole_sum.data());
    }
    to_bytes(scratch.whole_sum.data(), elements, out.row(i));
  }
}

void resample_nearest(const View& source, const Region& origin, const Taps& x, const Taps& y, Image& out) {
  for (int i = 0; i < y.size(); ++i) {
    const uint8_t* row = source.row(y.start[static_cast<size_t>(i)] - origin.y);
    uint8_t* to = out.row(i);
    for (const int at : x.start) {
      std::memcpy(to, row + (at - origin.x) * kChannels, kChannels);
      to += kChannels;
    }
  }
}

}  // namespace

void resample(const View& source, const Region& origin, const Plan& plan, Image& out) {
  thread_local Scratch scratch;
  out.reshape(plan.x.size(), plan.y.size());
  if (plan.arithmetic == Arithmetic::nearest) return resample_nearest(source, origin, plan.x, plan.y, out);
  const Rows rows(source, origin, scratch.last_row);
  if (plan.arithmetic == Arithmetic::bilinear) return resample_bilinear(rows, plan.x, plan.y, scratch, out);
  if (plan.arithmetic == Arithmetic::stepwise) return resample_stepwise(rows, plan.x, plan.y, scratch, out);
  resample_floats(rows, plan.x, plan.y, scratch, out);
}

}  // namespace trireme::image
