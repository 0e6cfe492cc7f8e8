// What the server counts, as Prometheus reads it (text format 0.0.4).
//
//   metrics.count_request(200, seconds);
//   metrics.count_batch(8, seconds);
//   body = metrics.text({.queued = batcher.waiting(), .in_flight = server.counts().in_flight});
//
// Guarantees: one text is one moment: its sums agree with each other. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/thread_annotations.h"

namespace trireme::serve {

/// Counts by upper bounds; the last count is for what exceeds them all.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void count(double value);
  /// The lines of a histogram with this name.
  std::string text(const std::string& name) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

class Metrics {
 public:
  /// What is known elsewhere and changes all the time.
  struct Gauges {
    size_t queued = 0;       ///< pictures that wait for the engine
    size_t in_flight = 0;    ///< requests that are being answered
    size_t connections = 0;  ///< open ones
    size_t models = 0;
    bool draining = false;
  };

  Metrics();
  /// An answer is ready, `seconds` after its request had come.
  void count_request(int status, double seconds);
  /// The engine has run a batch of pictures.
  void count_batch(size_t pictures, double seconds);
  /// A picture that could not be read.
  void count_refused_picture();
  /// A picture that the model could not answer.
  void count_failed_picture();
  /// Models were loaded again, all of them or not.
  void count_reload(bool all);
  std::string text(const Gauges& gauges) const;

 private:
  mutable Mutex mutex_;
  std::map<int, uint64_t> requests_ TRIREME_GUARDED_BY(mutex_);
  Histogram latency_ TRIREME_GUARDED_BY(mutex_);
  Histogram batch_size_ TRIREME_GUARDED_BY(mutex_);
  Histogram batch_seconds_ TRIREME_GUARDED_BY(mutex_);
  uint64_t refused_pictures_ TRIREME_GUARDED_BY(mutex_) = 0;
  uint64_t failed_pictures_ TRIREME_GUARDED_BY(mutex_) = 0;
  uint64_t reloads_ TRIREME_GUARDED_BY(mutex_) = 0;
  uint64_t failed_reloads_ TRIREME_GUARDED_BY(mutex_) = 0;
};

}  // namespace trireme::serve
