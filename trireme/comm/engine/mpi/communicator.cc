#include <fmt/core.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <deque>

#include "trireme/comm/engine/mpi/communicator_impl.h"
#include "trireme/comm/engine/topology.h"
#include "trireme/core/deadline.h"
#include "trireme/core/text.h"

namespace trireme::comm::mpi {
namespace {

constexpr int kAbortTag = 1;
constexpr int kMaxReason = 1024;

// How to wait for what MPI offers no event for: look often at first, then let others have the processor.
class Patience {
 public:
  /// Whether the wait is long enough for a look at the clock and at the others.
  bool is_long() const { return looks_ > kSpins + kYields; }

  void pause() {
    ++looks_;
    if (looks_ <= kSpins) return;
    if (!is_long()) {
      ::sched_yield();
      return;
    }
    const timespec nap{0, nap_};
    // layers: sleep ok, because MPI makes progress only when it is called and has no event to wait for
    ::nanosleep(&nap, nullptr);
    nap_ = std::min(2 * nap_, kMaxNap);
  }

 private:
  static constexpr int kSpins = 200;
  static constexpr int kYields = 200;
  static constexpr long kMaxNap = 1'000'000;  // 1 ms

  int looks_ = 0;
  long nap_ = 20'000;
};

int64_t millis(Clock::duration time) {
  return std::chrono::duration_cast<Millis>(time).count();
}

std::vector<int> checked_ranks(std::vector<int> ranks, RankInfo world) {
  if (ranks.empty())
    for (int rank = 0; rank < world.size; ++rank) ranks.push_back(rank);
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0 || sorted.back() >= world.size)
    throw UsageError("a group of {}, but MPI's world has ranks 0 to {}", name_ranks(ranks), world.size - 1);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw UsageError("a group of {}: a rank is named twice", name_ranks(ranks));
  if (!std::binary_search(sorted.begin(), sorted.end(), world.rank))
    throw UsageError("world rank {} is not in the group of {}; only members may make it", world.rank,
                     name_ranks(ranks));
  return ranks;
}

// Different for most groups, the same on all members, and out of the way of low tags that programs like.
int tag_of(const std::vector<int>& ranks) {
  uint32_t hash = 2166136261u;
  for (const int rank : ranks) hash = (hash ^ static_cast<uint32_t>(rank)) * 16777619u;
  return static_cast<int>(0x4000u | (hash & 0x3fffu));  // 32767 is the most that MPI promises
}

// An empty message from every rank to the group's first and back: when it returns, all ranks are there.
class Meeting {
 public:
  Meeting(Library& library, const std::vector<int>& ranks) : library_(library), ranks_(ranks), tag_(tag_of(ranks)) {}

  void hold(Deadline deadline) {
    const bool first = ranks_.front() == library_.world().rank;
    for (int step = 0; step < 2; ++step) {
      if (first)
        for (size_t k = 1; k < ranks_.size(); ++k) start(step == 0, ranks_[k]);
      else
        start(step == 1, ranks_.front());
      wait(deadline);
    }
  }

 private:
  void start(bool receives, int peer) {
    const auto turn = library_.turn();
    MPI_Request& request = requests_.emplace_back();
    peers_.push_back(peer);
    check(receives ? MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag_, MPI_COMM_WORLD, &request)
                   : MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag_, MPI_COMM_WORLD, &request),
          "meeting in MPI_COMM_WORLD");
  }
  void wait(Deadline deadline) {
    Patience patience;
    while (!is_complete()) {
      if (patience.is_long() && deadline.passed()) throw_missing();
      patience.pause();
    }
    requests_.clear();
    peers_.clear();
  }
  bool is_complete() {
    const auto turn = library_.turn();
    int all = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE), "MPI_Testall");
    return all != 0;
  }
  // MPI_Testall completes all or none: each is asked for itself.
  [[noreturn]] void throw_missing() {
    std::vector<int> missing;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) missing.push_back(peers_[i]);
    }
    throw PeerError("making an MPI group of world {}: world {} did not come in time; do all of them make it?",
                    name_ranks(ranks_), name_ranks(missing));
  }

  Library& library_;
  const std::vector<int>& ranks_;
  const int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

MPI_Comm make_communicator(Library& library, const std::vector<int>& ranks) {
  const auto turn = library.turn();
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag_of(ranks), &made), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  return made;
}

// MPI may read a message that it has accepted until it is delivered: these are kept.
const std::string& keep(std::string text) {
  static Mutex mutex;
  static std::deque<std::string>& kept TRIREME_GUARDED_BY(mutex) = *new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  return kept.emplace_back(std::move(text));
}

}  // namespace

Communicator::Communicator(const MpiOptions& options) : library_(Library::get()), timeout_(options.timeout) {
  library_.check_usable();
  const std::vector<int> ranks = checked_ranks(options.world_ranks, library_.world());
  const auto place = std::find(ranks.begin(), ranks.end(), library_.world().rank);
  me_ = {static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size())};
  const Library::Operation under_way(library_);
  try {
    Meeting(library_, ranks).hold(Deadline::in(timeout_));
    collectives_ = make_communicator(library_, ranks);
    const auto turn = library_.turn();
    check(MPI_Comm_dup(collectives_, &messages_), "MPI_Comm_dup");
  } catch (const PeerError& error) {
    library_.give_up(error.what());
    throw;
  }
}

// A failed group is left to MPI_Abort: others may still be sending to it.
Communicator::~Communicator() {
  int finalised = 1;
  const auto turn = library_.turn();
  const std::lock_guard lock(mutex_);
  if (!failure_.empty() || MPI_Finalized(&finalised) != MPI_SUCCESS || finalised) return;
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&collectives_);
}

void Communicator::perform(const std::function<void(Deadline)>& body) {
  check_alive();
  const Library::Operation under_way(library_);
  try {
    body(Deadline::in(timeout_));
  } catch (const Error& error) {
    library_.give_up(error.what());
    throw;
  }
}

void Communicator::check_alive() {
  library_.check_usable();
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw error_of(failure_);
}

void Communicator::run(const char* name, Deadline deadline, const std::function<int(MPI_Request*)>& start) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status{};
  {
    const auto turn = library_.turn();
    check(start(&request), name);
  }
  status.MPI_ERROR = MPI_SUCCESS;
  wait({&request, 1}, {&status, 1}, deadline);
  check(status.MPI_ERROR, name);
}

void Communicator::wait(std::span<MPI_Request> requests, std::span<MPI_Status> statuses, Deadline deadline) {
  for (MPI_Status& status : statuses) status.MPI_ERROR = MPI_SUCCESS;
  const auto done = [&] {
    int all = 0;
    const int code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, statuses.data());
    if (code == MPI_ERR_IN_STATUS) return true;
    if (code != MPI_SUCCESS && requests.size() == 1) statuses[0].MPI_ERROR = code;
    if (code != MPI_SUCCESS && requests.size() > 1) check(code, "MPI_Testall");
    return all != 0 || code != MPI_SUCCESS;
  };
  poll(done, deadline);
}

void Communicator::poll(const std::function<bool()>& done, Deadline deadline) {
  for (Patience patience;; patience.pause()) {
    {
      const auto turn = library_.turn();
      if (done()) return;
    }
    if (patience.is_long()) look_around(deadline);
  }
}

void Communicator::look_around(Deadline deadline) {
  check_alive();
  hear_aborts();
  if (deadline.passed())
    throw PeerError(
        "timeout of {} ms: a rank has not come, and MPI does not tell which; is one slow, dead, or in another "
        "collective? a longer timeout is an option of the group",
        millis(timeout_));
}

void Communicator::hear_aborts() {
  const auto turn = library_.turn();
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  check(MPI_Improbe(MPI_ANY_SOURCE, kAbortTag, collectives_, &found, &message, &status), "MPI_Improbe");
  if (found == 0) return;
  std::string text(kMaxReason, '\0');
  int length = 0;
  check(MPI_Get_count(&status, MPI_CHAR, &length), "MPI_Get_count");
  length = std::min(length, kMaxReason);
  check(MPI_Mrecv(text.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  const std::lock_guard lock(mutex_);
  told_ = true;  // by the sender
  throw error_of(decode_blame(std::string_view(text).substr(0, static_cast<size_t>(length))));
}

void Communicator::abort(const Blame& blame) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = blame;
  }
  library_.note_abort();
  tell(blame);
}

void Communicator::tell(const Blame& blame) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(told_, true)) return;
  }
  const auto turn = library_.turn();
  int finalised = 1;
  if (MPI_Finalized(&finalised) != MPI_SUCCESS || finalised) return;
  const std::string& text = keep(encode(blame).substr(0, kMaxReason));
  for (int rank = 0; rank < me_.size; ++rank) {
    if (rank == me_.rank) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    const int size = static_cast<int>(text.size());
    if (MPI_Isend(text.data(), size, MPI_CHAR, rank, kAbortTag, collectives_, &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }
}

}  // namespace trireme::comm::mpi
