// The times of batches: how long they took to read, and to work on. No torch here.
//
//   Pace pace;
//   for (…) { read a batch;  pace.read();  work on it;  pace.done(64); }
//   pace.rows_per_second();
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

namespace trireme::train {

/// Sums and means over the batches since construction or the last reset().
class Pace {
 public:
  /// Call when a batch has been read.
  void read() { reader_ += lap(); }
  /// Call when the work on it is done.
  void done(int64_t rows) {
    work_ += lap();
    rows_ += static_cast<double>(rows);
    batches_ += 1;
  }
  /// The time since the last batch, of logging for example, does not belong to the next one.
  void reset() { *this = Pace(); }

  double reader_seconds() const { return reader_; }
  double work_seconds() const { return work_; }
  double reader_cost() const { return batches_ == 0 ? 0 : reader_ / batches_; }
  double batch_cost() const { return batches_ == 0 ? 0 : (reader_ + work_) / batches_; }  ///< reading included
  double rows_per_second() const { return reader_ + work_ <= 0 ? 0 : rows_ / (reader_ + work_); }

 private:
  using Clock = std::chrono::steady_clock;

  double lap() {
    const Clock::time_point before = std::exchange(last_, Clock::now());
    return std::chrono::duration<double>(last_ - before).count();
  }

  Clock::time_point last_ = Clock::now();
  double reader_ = 0, work_ = 0, rows_ = 0, batches_ = 0;
};

}  // namespace trireme::train
