#include "trireme/comm/abort_notice.h"

#include "trireme/core/quiet_thread.h"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kPeriod{250};
constexpr size_t kPeriodsPerInspection = 8;

}  // namespace

AbortNotice::AbortNotice(std::shared_ptr<Store> store, std::string key, Handler handler, Inspect inspect)
    : store_(std::move(store)),
      key_(std::move(key)),
      handler_(std::move(handler)),
      inspect_(std::move(inspect)),
      thread_(start_quiet_thread("a group's watch", [this] { watch(); })) {}

AbortNotice::~AbortNotice() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void AbortNotice::give(const Blame& blame) noexcept {
  try {
    store_->compare_set(key_, "", encode(blame));
  } catch (const std::exception&) {
  }
}

Blame AbortNotice::given() noexcept {
  try {
    return decode_blame(store_->try_get(key_).value_or(""));
  } catch (const std::exception&) {
    return {};
  }
}

Blame AbortNotice::find_blame(size_t rounds) {
  Blame blame = given();
  if (!blame.empty() || !inspect_ || rounds % kPeriodsPerInspection != 0) return blame;
  blame = inspect_(rounds / kPeriodsPerInspection);
  if (!blame.empty()) give(blame);
  return blame;
}

// Wakes up by the clock alone: an operation that ends in time must not have to wake up anyone.
void AbortNotice::watch() {
  uint64_t ended_before = ~uint64_t{0};
  size_t stuck_rounds = 0;
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kPeriod, [this]() TRIREME_REQUIRES(mutex_) { return stop_; })) {
    const uint64_t ended = ended_;
    const bool stuck = ended == ended_before && begun_ != ended;
    ended_before = ended;
    stuck_rounds = stuck ? stuck_rounds + 1 : 0;
    if (!stuck) continue;
    lock.unlock();
    if (const Blame blame = find_blame(stuck_rounds); !blame.empty()) return handler_(blame);
    lock.lock();
  }
}

}  // namespace trireme::comm
