#include "trireme/launch/nodes/job_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/quiet_thread.h"

namespace trireme::launch {
namespace {

constexpr std::chrono::milliseconds kSlice{500};  // of a long wait in which something else must be looked at

class LateNodes : public PeerError {
 public:
  using PeerError::PeerError;
};

UniqueFd make_event() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw SystemError(errno, "cannot make an event descriptor");
  return event;
}

void raise_event(const UniqueFd& event) {
  const uint64_t one = 1;
  write_all(event.get(), std::string_view(reinterpret_cast<const char*>(&one), sizeof one));
}

void clear_event(const UniqueFd& event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(event.get(), &count, sizeof count);
}

}  // namespace

LostNodes::LostNodes() : wake_(make_event()) {}

void LostNodes::add(const std::string& name) {
  const std::lock_guard lock(mutex_);
  names_.push_back(name);
  all_.insert(name);
  raise_event(wake_);
}

std::vector<std::string> LostNodes::take() {
  const std::lock_guard lock(mutex_);
  clear_event(wake_);
  return std::exchange(names_, {});
}

bool LostNodes::contains(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return all_.contains(name);
}

StoreLink::StoreLink(Options options) : options_(std::move(options)), wake_(make_event()) {}

StoreLink::~StoreLink() {
  end_attempt();
}

std::string StoreLink::outcome_key(int attempt) {
  return fmt::format("outcome/{}", attempt);
}

std::string StoreLink::key(const std::string& name) const {
  return fmt::format("{}/{}", name, attempt_);
}

void StoreLink::begin(int attempt, const Objection& objection, Millis pause) {
  end_attempt();
  attempt_ = attempt;
  {
    const std::lock_guard lock(mutex_);
    outcome_.reset();
    guessed_ = false;
  }
  clear_event(wake_);
  try {
    wait_for_everyone(objection, Deadline::in(pause));
    if (const auto already = options_.store->try_get(key("outcome"))) settle(outcome_from_json(*already));
  } catch (const LateNodes&) {
    throw;
  } catch (const PeerError& error) {
    return settle(loss_of_store(error), /*guessed=*/true);
  }
  ending_ = false;
  waiter_ = start_quiet_thread("the job link", [this] { wait_for_outcome(); });
}

// A node that calls the attempt off ends the pauses of the others.
void StoreLink::wait_for_everyone(const Objection& objection, Deadline not_before) {
  const Deadline deadline = Deadline::in(options_.attempt_timeout);
  bool arrived = false;
  for (;;) {
    // Asked before this node counts as arrived: the last one to arrive releases all the others.
    const auto objected = objection(Deadline::in(Millis(0)));
    if (const auto reason = objected ? objected : loss()) return call_off(*reason);
    if (!arrived && not_before.passed()) {
      arrived = true;
      if (options_.store->add(key("begun"), 1) == options_.nodes) options_.store->set(key("all_begun"), "");
    }
    Deadline slice = earlier(deadline, Deadline::in(kSlice));
    if (!arrived) slice = earlier(slice, not_before);
    try {
      options_.store->get(key("all_begun"), slice);
      return;
    } catch (const PeerError& error) {
      if (!slice.passed()) throw;
      if (deadline.passed())
        throw LateNodes("not all {} nodes have begun attempt {} of the job within {} s: {}", options_.nodes, attempt_,
                        options_.attempt_timeout.count() / 1000, error.what());
    }
  }
}

// Sets the attempt's outcome and releases the nodes that wait for it to begin.
void StoreLink::call_off(const JobOutcome& outcome) {
  report(outcome);
  options_.store->set(key("all_begun"), "");
}

std::optional<JobOutcome> StoreLink::loss() {
  if (!options_.lost) return std::nullopt;
  for (const std::string& name : options_.lost->take())
    if (const auto node = options_.describe(name))
      return JobOutcome::lost(fmt::format("lost {}: its launcher or the machine is gone", *node));
  return std::nullopt;
}

// In slices, so that the thread ends soon after end_attempt() whatever state the coordinator is in: one that is stopped
// neither answers nor closes the connection.
void StoreLink::wait_for_outcome() {
  while (!ending_) {
    const Deadline slice = Deadline::in(kSlice);
    try {
      settle(outcome_from_json(options_.store->get(key("outcome"), slice)));
      if (options_.store->add(key("heard"), 1) == options_.nodes) options_.store->set(key("all_heard"), "");
      return;
    } catch (const std::exception& error) {
      if (slice.passed()) continue;
      return settle(loss_of_store(error), /*guessed=*/true);
    }
  }
}

JobOutcome StoreLink::loss_of_store(const std::exception& error) const {
  return JobOutcome::lost_coordinator(fmt::format("lost the connection to {}: {}", options_.coordinator, error.what()));
}

void StoreLink::settle(const JobOutcome& outcome, bool guessed) {
  const std::lock_guard lock(mutex_);
  if (!outcome_) {
    outcome_ = outcome;
    guessed_ = guessed;
  }
  raise_event(wake_);
}

bool StoreLink::known() {
  const std::lock_guard lock(mutex_);
  return outcome_.has_value();
}

void StoreLink::report(const JobOutcome& failure) {
  try {
    settle(outcome_from_json(options_.store->compare_set(key("outcome"), "", to_json(failure))));
  } catch (const PeerError&) {
    // The store is gone; the other nodes notice the same loss. The waiting thread may have noticed it first: what has
    // failed here says more than the lost connection.
    const std::lock_guard lock(mutex_);
    if (!outcome_ || guessed_) outcome_ = failure;
    guessed_ = false;
    raise_event(wake_);
  }
}

void StoreLink::report_success() {
  try {
    if (options_.store->add(key("succeeded"), 1) == options_.nodes) report(JobOutcome{});
  } catch (const PeerError&) {
    // The waiting thread meets the same loss and settles it.
  }
}

std::optional<JobOutcome> StoreLink::outcome() {
  clear_event(wake_);
  if (const auto reason = loss()) report(*reason);
  if (options_.revoked)
    if (const auto reason = options_.revoked()) report(*reason);
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void StoreLink::farewell(Deadline deadline) {
  try {
    options_.store->get(key("all_heard"), deadline);
  } catch (const PeerError&) {
    // A node that is gone cannot hear; the deadline was for it.
  }
}

std::vector<int> StoreLink::wake_fds() const {
  if (!options_.lost) return {wake_.get()};
  return {wake_.get(), options_.lost->wake_fd()};
}

void StoreLink::end_attempt() {
  if (!waiter_.joinable()) return;
  ending_ = true;
  if (!known()) report(JobOutcome::abort("a launcher ended early", exit_code::kPeer));
  waiter_.join();
}

}  // namespace trireme::launch
