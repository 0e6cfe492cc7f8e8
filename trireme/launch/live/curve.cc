#include "trireme/launch/live/curve.h"

namespace trireme::launch {

void Curve::add(const CurvePoint& point) {
  newest_ = point;
  sum_ += point.value;
  if (++pending_ < stride_) return;
  means_.push_back({point.step, point.seconds, sum_ / static_cast<double>(pending_)});
  sum_ = 0;
  pending_ = 0;
  if (means_.size() == kMaxPoints) halve();
}

void Curve::halve() {
  for (size_t i = 0; i < means_.size() / 2; ++i) {
    const CurvePoint& first = means_[2 * i];
    const CurvePoint& second = means_[2 * i + 1];
    means_[i] = {second.step, second.seconds, (first.value + second.value) / 2};
  }
  means_.resize(means_.size() / 2);
  stride_ *= 2;
}

std::vector<CurvePoint> Curve::points() const {
  std::vector<CurvePoint> all = means_;
  if (pending_ > 0) all.push_back(*newest_);
  return all;
}

}  // namespace trireme::launch
