#include "trireme/deploy/infer/latency.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::infer {

void Latency::add(std::chrono::nanoseconds taken) {
  milliseconds_.push_back(std::chrono::duration<double, std::milli>(taken).count());
}

double Latency::mean() const {
  if (milliseconds_.empty()) return 0;
  return std::accumulate(milliseconds_.begin(), milliseconds_.end(), 0.0) / static_cast<double>(count());
}

double Latency::percentile(double percent) const {
  if (milliseconds_.empty()) return 0;
  std::vector<double> sorted = milliseconds_;
  std::sort(sorted.begin(), sorted.end());
  const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace trireme::infer
