// Which mutex guards which field, in words that clang checks (-Wthread-safety); GCC reads them as nothing.
//
//   class Counter {
//    public:
//     void add() {
//       const std::lock_guard lock(mutex_);
//       ++count_;                              // without the lock: an error in the clang builds
//     }
//
//    private:
//     void reset() TRIREME_REQUIRES(mutex_);   // called with the lock held
//
//     Mutex mutex_;
//     int count_ TRIREME_GUARDED_BY(mutex_) = 0;
//   };
//
// A lambda is checked as a function of its own, so the condition of a wait names the lock as well:
//
//   changed_.wait(lock, [this]() TRIREME_REQUIRES(mutex_) { return count_ > 0; });
#pragma once

#include <mutex>

#if defined(__clang__)
#define TRIREME_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TRIREME_THREAD_ATTRIBUTE(x)
#endif

/// Of a field: read and written with the mutex locked.
#define TRIREME_GUARDED_BY(mutex) TRIREME_THREAD_ATTRIBUTE(guarded_by(mutex))
/// Of a pointer: what it points to is read and written with the mutex locked.
#define TRIREME_PT_GUARDED_BY(mutex) TRIREME_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
/// Of a function: the caller holds the mutex.
#define TRIREME_REQUIRES(mutex) TRIREME_THREAD_ATTRIBUTE(requires_capability(mutex))
/// Of a function that the analysis cannot follow. Say why beside it.
#define TRIREME_NO_THREAD_SAFETY_ANALYSIS TRIREME_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace trireme {

/// A std::mutex that the analysis knows. Lock it by std::lock_guard or std::unique_lock; the latter also fits
/// std::condition_variable.
class TRIREME_THREAD_ATTRIBUTE(capability("mutex")) Mutex : public std::mutex {
 public:
  bool try_lock() TRIREME_THREAD_ATTRIBUTE(try_acquire_capability(true)) { return std::mutex::try_lock(); }
};

}  // namespace trireme

// libstdc++'s own locks say nothing to the analysis, so those of Mutex are ours.
template <>
class TRIREME_THREAD_ATTRIBUTE(scoped_lockable) std::lock_guard<trireme::Mutex> {
 public:
  using mutex_type = trireme::Mutex;

  explicit lock_guard(trireme::Mutex& mutex) TRIREME_THREAD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  lock_guard(trireme::Mutex& mutex, std::adopt_lock_t) TRIREME_REQUIRES(mutex) : mutex_(mutex) {}
  ~lock_guard() TRIREME_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  lock_guard(const lock_guard&) = delete;
  lock_guard& operator=(const lock_guard&) = delete;

 private:
  trireme::Mutex& mutex_;
};

template <>
class TRIREME_THREAD_ATTRIBUTE(scoped_lockable) std::unique_lock<trireme::Mutex> : public std::unique_lock<std::mutex> {
 public:
  using mutex_type = trireme::Mutex;

  explicit unique_lock(trireme::Mutex& mutex) TRIREME_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : std::unique_lock<std::mutex>(mutex) {}
  ~unique_lock() TRIREME_THREAD_ATTRIBUTE(release_capability()) {}  // NOLINT(modernize-use-equals-default): annotated
  void lock() TRIREME_THREAD_ATTRIBUTE(acquire_capability()) { std::unique_lock<std::mutex>::lock(); }
  void unlock() TRIREME_THREAD_ATTRIBUTE(release_capability()) { std::unique_lock<std::mutex>::unlock(); }
};
