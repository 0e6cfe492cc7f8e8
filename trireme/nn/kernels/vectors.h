// What the kernels' loops over channels have in common. Included once for each kind of vectors, inside of Highway's
// foreach_target; so it has a guard of its own.
#if defined(TRIREME_NN_KERNELS_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_NN_KERNELS_VECTORS
#undef TRIREME_NN_KERNELS_VECTORS
#else
#define TRIREME_NN_KERNELS_VECTORS
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace trireme::nn::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;
constexpr Tag kTag;

/// A vector's worth of channels.
struct Whole {
  HWY_INLINE Vec load(const float* from) const { return hn::LoadU(kTag, from); }
  HWY_INLINE void store(Vec value, float* to) const { hn::StoreU(value, kTag, to); }
  template <bool kStream>
  HWY_INLINE void put(Vec value, float* to) const {
    if constexpr (kStream) {
      hn::Stream(value, kTag, to);
    } else {
      hn::StoreU(value, kTag, to);
    }
  }
};

/// The channels that are left. Those behind them read as 0 and stay as they are; their memory may not exist.
struct Rest {
  explicit Rest(int64_t left) : count(static_cast<size_t>(left)) {}
  size_t count;
#if HWY_TARGET > HWY_AVX2
  // Vectors without masked reads and writes: through memory of our own.
  HWY_INLINE Vec load(const float* from) const {
    HWY_ALIGN float whole[HWY_MAX_BYTES / sizeof(float)] = {};
    for (size_t i = 0; i < count; ++i) whole[i] = from[i];
    return hn::Load(kTag, whole);
  }
  HWY_INLINE void store(Vec value, float* to) const {
    HWY_ALIGN float whole[HWY_MAX_BYTES / sizeof(float)] = {};
    hn::Store(value, kTag, whole);
    for (size_t i = 0; i < count; ++i) to[i] = whole[i];
  }
#else
  HWY_INLINE Vec load(const float* from) const { return hn::MaskedLoad(hn::FirstN(kTag, count), kTag, from); }
  HWY_INLINE void store(Vec value, float* to) const { hn::BlendedStore(value, hn::FirstN(kTag, count), kTag, to); }
#endif
  template <bool kStream>
  HWY_INLINE void put(Vec value, float* to) const {
    store(value, to);
  }
};

/// f(part, c) for each vector of channels.
template <typename F>
HWY_INLINE void for_each_vector(int64_t channels, F f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(kTag));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) f(Whole(), c);
  if (c < channels) f(Rest(channels - c), c);
}

}  // namespace trireme::nn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
