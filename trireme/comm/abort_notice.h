// How a rank that gives up tells the other members of its group, where no shared memory does it: by a key in the store.
// The others look for it while an operation of theirs does not end.
//
//   AbortNotice notice(store, "world/ended", [&](const Blame& blame) { abort_here(blame); });
//   {
//     const AbortNotice::Waiting waiting(notice);      // around everything that may wait for another rank
//     …
//   }
//   notice.give({2, "rank 2 died"});                       // on the rank that knows; the first blame stays
//
// A group whose operations end costs the store nothing; one that waits asks four times a second.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "trireme/comm/engine/blame.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/store/store.h"

namespace trireme::comm {

class AbortNotice {
 public:
  using Handler = std::function<void(const Blame& blame)>;
  /// Looks for a reason to give up; empty when there is none. `turn` counts the calls.
  using Inspect = std::function<Blame(size_t turn)>;

  /// `handler` is called once at most, on a thread of this object's own. While an operation does not end that thread
  /// also inspects, every two seconds, and gives what it finds: a network library may miss that a peer has gone.
  AbortNotice(std::shared_ptr<Store> store, std::string key, Handler handler, Inspect inspect = {});
  ~AbortNotice();
  AbortNotice(const AbortNotice&) = delete;
  AbortNotice& operator=(const AbortNotice&) = delete;

  class Waiting {
   public:
    explicit Waiting(AbortNotice& notice) : notice_(notice) { ++notice_.begun_; }
    ~Waiting() { ++notice_.ended_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    AbortNotice& notice_;
  };

  /// A lost store is no error here: then the others have lost it too.
  void give(const Blame& blame) noexcept;
  /// The first that a rank has given; empty when there is none.
  Blame given() noexcept;

 private:
  void watch();
  Blame find_blame(size_t rounds);

  const std::shared_ptr<Store> store_;
  const std::string key_;
  const Handler handler_;
  const Inspect inspect_;
  std::atomic<uint64_t> begun_ = 0;
  std::atomic<uint64_t> ended_ = 0;
  Mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trireme::comm
