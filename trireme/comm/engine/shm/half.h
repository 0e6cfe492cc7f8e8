// The two 16-bit floating types as bits. Every function is free of branches that depend on the value, so that loops
// over them vectorise, and exact: widening loses nothing, narrowing rounds to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme::comm::shm {

[[gnu::always_inline]] inline float widen_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

[[gnu::always_inline]] inline uint16_t narrow_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = 0x7fc0u | ((bits >> 16) & 0x8000u);
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// The half's exponent and fraction are moved to a float's places and the exponent's offset corrected; a subnormal half
// is made normal by a subtraction that is exact.
[[gnu::always_inline]] inline float widen_f16(uint16_t half) {
  constexpr uint32_t kExponent = 0x7c00u << 13;
  constexpr float kSmallestNormal = 6.103515625e-05f;  // 2^-14
  const uint32_t moved = (half & 0x7fffu) << 13;
  const uint32_t exponent = moved & kExponent;
  const uint32_t normal = moved + ((127u - 15u) << 23);
  const uint32_t special = normal + ((128u - 16u) << 23);
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - kSmallestNormal);
  const uint32_t magnitude = exponent == kExponent ? special : exponent == 0 ? subnormal : normal;
  return std::bit_cast<float>(magnitude | (static_cast<uint32_t>(half & 0x8000u) << 16));
}

// A result below 2^-14 gets its rounding from adding 0.5, whose last bit is then worth 2^-24, the smallest half.
[[gnu::always_inline]] inline uint16_t narrow_f16(float value) {
  constexpr uint32_t kInfinity = 255u << 23;
  constexpr uint32_t kTooLarge = (127u + 16u) << 23;  // 2^16
  constexpr uint32_t kNormal = 113u << 23;            // 2^-14
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t special = magnitude > kInfinity ? 0x7e00u : 0x7c00u;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  const uint32_t normal = (magnitude + ((15u - 127u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  return static_cast<uint16_t>(sign | (magnitude >= kTooLarge ? special : magnitude < kNormal ? subnormal : normal));
}

}  // namespace trireme::comm::shm
