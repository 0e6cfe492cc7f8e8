// A curve of bounded size: when it is full, neighbours are averaged, so that it keeps its shape however long it gets.
//
//   Curve loss;
//   loss.add({.step = 12, .seconds = 3.5, .value = 0.25});
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::launch {

struct CurvePoint {
  int64_t step = -1;   // -1: not known
  double seconds = 0;  // since the job began
  double value = 0;
};

class Curve {
 public:
  static constexpr size_t kMaxPoints = 512;

  void add(const CurvePoint& point);
  /// The means of `stride` neighbours each, and after them the newest point.
  std::vector<CurvePoint> points() const;
  size_t stride() const { return stride_; }
  const std::optional<CurvePoint>& newest() const { return newest_; }

 private:
  void halve();

  std::vector<CurvePoint> means_;
  size_t stride_ = 1;
  size_t pending_ = 0;  // points in sum_
  double sum_ = 0;
  std::optional<CurvePoint> newest_;
};

}  // namespace trireme::launch
