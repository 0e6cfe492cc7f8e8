#include "trireme/data/order/shuffle.h"

#include <bit>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace trireme::data {
namespace {

/// Uniform in [0, limit]: draws as many bits as `limit` has until the number fits.
uint32_t draw_up_to(std::mt19937& generator, uint32_t limit) {
  const uint32_t mask = std::numeric_limits<uint32_t>::max() >> std::countl_zero(limit);
  while (true) {
    const auto value = static_cast<uint32_t>(generator()) & mask;
    if (value <= limit) return value;
  }
}

/// From this many values on torch goes another way, with 64 bits a draw: the remainder of 32 would favour small
/// numbers.
constexpr uint32_t kTorchLarge = std::numeric_limits<uint32_t>::max() / 20;

uint64_t draw_64(std::mt19937& generator) {
  const uint64_t high = generator();
  return high << 32 | generator();
}

/// Fisher and Yates' shuffle from the front.
void torch_small(std::vector<uint32_t>& values, std::mt19937& generator) {
  std::iota(values.begin(), values.end(), 0u);
  for (size_t i = 0; i + 1 < values.size(); ++i)
    std::swap(values[i], values[i + static_cast<uint32_t>(generator()) % (values.size() - i)]);
}

/// The same from inside out: each value is put in as the list grows.
void torch_large(std::vector<uint32_t>& values, std::mt19937& generator) {
  for (uint64_t i = 0; i < values.size(); ++i) {
    const uint64_t place = draw_64(generator) % (i + 1);
    values[i] = values[place];
    values[place] = static_cast<uint32_t>(i);
  }
}

}  // namespace

void numpy_shuffle(std::vector<uint32_t>& values, uint32_t seed) {
  std::mt19937 generator(seed);
  for (size_t i = values.size(); i-- > 1;)
    std::swap(values[i], values[draw_up_to(generator, static_cast<uint32_t>(i))]);
}

std::vector<uint32_t> torch_randperm(uint32_t count, uint64_t seed) {
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<uint32_t> values(count);
  count < kTorchLarge ? torch_small(values, generator) : torch_large(values, generator);
  return values;
}

}  // namespace trireme::data
