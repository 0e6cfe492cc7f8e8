#include "trireme/data/image/random.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "trireme/data/order/mix.h"

namespace trireme::image {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // splitmix64's, as in scramble()

}  // namespace

Random::Random(std::initializer_list<uint64_t> seeds) {
  for (const uint64_t seed : seeds) state_ = data::scramble(state_) ^ data::scramble(seed);
}

uint64_t Random::next() {
  return data::scramble(std::exchange(state_, state_ + kStep));
}

uint64_t Random::below(uint64_t n) {
  const uint64_t uneven = (0 - n) % n;  // 2^64 mod n: the lowest numbers, of which some values would get one more
  uint64_t number = next();
  while (number < uneven) number = next();
  return number % n;
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));  // 1 - uniform(): never 0
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double Random::gamma(double shape) {
  // Marsaglia and Tsang, A simple method for generating gamma variables, 2000; below 1 by their section 6.
  if (shape < 1) {
    const double above = gamma(shape + 1);
    return above * std::pow(1 - uniform(), 1 / shape);
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - uniform()) < 0.5 * x * x + d * (1 - v + std::log(v))) return d * v;
  }
}

double Random::beta(double a, double b) {
  const double x = gamma(a);
  const double y = gamma(b);
  if (x + y > 0) return x / (x + y);
  return chance(a / (a + b)) ? 1 : 0;  // both underflowed: so small a and b leave only the two ends
}

}  // namespace trireme::image
