// How long calls took: percentiles of a few thousand times.
//
//   Latency latency;
//   latency.add(taken);
//   latency.percentile(99);      // milliseconds
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace trireme::infer {

/// One thread at a time.
class Latency {
 public:
  void add(std::chrono::nanoseconds taken);
  size_t count() const { return milliseconds_.size(); }
  /// 0 when there is none.
  double mean() const;
  /// The least time that `percent` of all calls did not exceed (nearest rank); 0 when there is none.
  double percentile(double percent) const;

 private:
  std::vector<double> milliseconds_;
};

}  // namespace trireme::infer
