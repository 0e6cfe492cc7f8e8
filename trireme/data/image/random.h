// The random numbers of the image operators: splitmix64, spelled out, so that a seed means the same numbers everywhere.
//
//   Random random({seed, epoch, sample});  // what a sample gets depends on no thread and on no other sample
//   const double angle = random.uniform(-30, 30);
//   if (random.chance(0.5)) flip(image);
//
// Guarantees: the whole numbers, uniform() and chance() are the same on every machine; normal() and beta() use the
// logarithm of the C library and may differ in the last digit. One thread at a time; copies are independent.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace trireme::image {

class Random {
 public:
  explicit Random(uint64_t seed) : Random({seed}) {}
  /// Every part counts, and so does their order: {1, 2} is unlike {2, 1} and {3}.
  Random(std::initializer_list<uint64_t> seeds);

  uint64_t next();
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  ///< in [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// One of 0 … n-1, each as likely as the others. Requires n > 0.
  uint64_t below(uint64_t n);
  /// One of low … high, both included. Requires low <= high.
  int integer(int low, int high) {
    return low + static_cast<int>(below(static_cast<uint64_t>(int64_t{high} - low) + 1));
  }
  bool chance(double probability) { return uniform() < probability; }
  double normal();
  double normal(double mean, double deviation) { return mean + deviation * normal(); }
  /// Requires shape > 0; the scale is 1.
  double gamma(double shape);
  /// The share of mixup and CutMix. Requires a > 0 and b > 0; in [0, 1].
  double beta(double a, double b);

 private:
  uint64_t state_ = 0;
};

}  // namespace trireme::image
