// The ranks of one group in MPI: how they meet, wait with a deadline, and end each other's waits.
//
// Nothing here blocks in MPI except making the communicators, and that only after all ranks have met: every
// operation is a request that is polled until the deadline. MPI does not report that a rank has given up. So a rank
// that gives up sends all others a message of its own kind, and a rank that waits long looks for such a message.
#pragma once

#include <mpi.h>

#include <functional>
#include <span>
#include <vector>

#include "trireme/comm/engine/blame.h"
#include "trireme/comm/engine/mpi.h"
#include "trireme/comm/engine/mpi/library_impl.h"
#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/error.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::comm::mpi {

class Communicator {
 public:
  /// Meets the others, see make_mpi_engine().
  explicit Communicator(const MpiOptions& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  RankInfo me() const { return me_; }
  /// For collectives and for messages inside them.
  MPI_Comm collectives() const { return collectives_; }
  /// For the caller's own messages.
  MPI_Comm messages() const { return messages_; }

  /// Runs one operation. After an error MPI cannot be used in this process any more: it takes nothing back.
  void perform(const std::function<void(Deadline)>& body);

  /// Starts one nonblocking call and waits for it. `name` is the call's.
  void run(const char* name, Deadline deadline, const std::function<int(MPI_Request*)>& start);
  /// Waits for all; PeerError at the deadline. A code other than MPI_SUCCESS is left in the statuses.
  void wait(std::span<MPI_Request> requests, std::span<MPI_Status> statuses, Deadline deadline);
  /// Calls `done` until it is true, with the right to make one MPI call.
  void poll(const std::function<bool()>& done, Deadline deadline);

  /// Ends the group's waits, here and on the others.
  void abort(const Blame& blame);

 private:
  void check_alive();
  void look_around(Deadline deadline);
  void hear_aborts();
  void tell(const Blame& blame);

  Library& library_;
  const Clock::duration timeout_;
  RankInfo me_;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  Mutex mutex_;
  Blame failure_ TRIREME_GUARDED_BY(mutex_);      // the first
  bool told_ TRIREME_GUARDED_BY(mutex_) = false;  // the others know
};

}  // namespace trireme::comm::mpi
