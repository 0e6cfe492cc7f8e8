// Several numbers mixed into one seed: equal numbers give equal seeds, and different ones give unrelated seeds.
//
//   uint64_t draw = mix(seed, epoch, sample);
//
// Whatever is chosen at random about a sample is chosen by a generator seeded with its draw, and by nothing else: not
// by a generator that a thread keeps. So it does not matter which thread prepares the sample, or when.
#pragma once

#include <cstdint>

namespace trireme::data {

/// The output function of SplitMix64 (Steele, Lea and Flood 2014): one to one, and each bit depends on every other.
constexpr uint64_t scramble(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/// Depends on the order: mix(1, 2) is not mix(2, 1).
template <typename... Numbers>
constexpr uint64_t mix(Numbers... numbers) {
  uint64_t mixed = sizeof...(numbers);
  ((mixed = scramble(mixed ^ scramble(static_cast<uint64_t>(numbers)))), ...);
  return mixed;
}

}  // namespace trireme::data
