// Says of a save that takes long that it is under way, and at its end how long it took. A short one says nothing.
//
//   SlowSave note("output/latest", /*total=*/bytes);
//   for (…) { write(tensor);  note.wrote(tensor.nbytes()); }
//   note.done();                                     // without it the save has failed, and its error says so
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <string>
#include <thread>

#include "trireme/core/clock.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::io {

class SlowSave {
 public:
  static constexpr Millis kPatience{2'000};

  /// `total`: the bytes to write; 0: not known.
  explicit SlowSave(std::string what, uint64_t total = 0, Millis patience = kPatience);
  ~SlowSave();
  SlowSave(const SlowSave&) = delete;
  SlowSave& operator=(const SlowSave&) = delete;

  /// So many bytes more are to be written.
  void expect(uint64_t bytes);
  void wrote(uint64_t bytes);
  void done();

 private:
  void report_if_slow();
  void stop();

  const std::string what_;
  const Millis patience_;
  const Clock::time_point started_ = Clock::now();
  Mutex mutex_;
  std::condition_variable changed_;
  uint64_t total_ TRIREME_GUARDED_BY(mutex_);
  uint64_t written_ TRIREME_GUARDED_BY(mutex_) = 0;
  bool over_ TRIREME_GUARDED_BY(mutex_) = false;
  bool reported_ TRIREME_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace trireme::io
