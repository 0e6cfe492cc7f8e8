// The MPI library as one per process: initialised once, finalised or aborted at exit, and how its errors become PeerErrors.
#pragma once

#include <mpi.h>

#include <atomic>
#include <mutex>
#include <string>

#include "trireme/core/rank_info.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::comm::mpi {

class Library {
 public:
  /// Initialises MPI on the first call. UsageError: the program has finalised it, or allows no calls from threads.
  static Library& get();

  RankInfo world() const { return world_; }

  /// Held for each MPI call. It locks only where the library does not take calls from several threads at once.
  using Turn = std::unique_lock<std::timed_mutex>;
  Turn turn();

  /// No further MPI call is to be made, by any engine: one has failed and cannot be taken back.
  void give_up(const std::string& reason);
  /// A group was aborted: this process must not end in MPI_Finalize, where it would wait for the others.
  void note_abort() { aborted_ = true; }
  /// PeerError after give_up().
  void check_usable();

  /// Counts the operations under way; at exit there must be none.
  class Operation {
   public:
    explicit Operation(Library& library) : library_(library) { ++library_.under_way_; }
    ~Operation() { --library_.under_way_; }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    Library& library_;
  };

 private:
  Library();
  void initialise();
  void leave(int status);

  bool ours_ = false;       // we initialised it, so we finalise it
  bool in_threads_ = true;  // MPI_THREAD_MULTIPLE
  RankInfo world_;
  int process_ = 0;  // a forked child has no part in MPI
  std::timed_mutex turn_;
  std::atomic<int> under_way_ = 0;
  std::atomic<bool> given_up_ = false;
  std::atomic<bool> aborted_ = false;
  Mutex mutex_;
  std::string reason_ TRIREME_GUARDED_BY(mutex_);
};

/// The library's text for a return code.
std::string error_text(int code);
/// PeerError with that text unless the code is MPI_SUCCESS. `what` names the call.
void check(int code, const char* what);

}  // namespace trireme::comm::mpi
