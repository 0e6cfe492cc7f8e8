#include "trireme/store/meeting_store.h"

#include <fmt/ranges.h>

#include "trireme/core/error.h"

namespace trireme::store {
namespace {

constexpr Millis kSlice{200};  // of a long wait, between two looks at the ranks that have ended
constexpr const char* kCame = "came";
constexpr const char* kFinished = "finished";

}  // namespace

MeetingStore::MeetingStore(std::shared_ptr<Store> store, Options options)
    : store_(store), options_(std::move(options)), ended_(std::move(store), options_.attempt) {
  tell(kCame);
}

void MeetingStore::tell(const char* state) {
  store_->set(fmt::format("{}state/{}", options_.prefix, options_.me), state);
}

std::string MeetingStore::state_of(int rank) {
  return store_->try_get(fmt::format("{}state/{}", options_.prefix, rank)).value_or("");
}

void MeetingStore::finish() {
  tell(kFinished);
  finished_ = true;
}

std::vector<int> MeetingStore::unfinished() noexcept {
  std::vector<int> ranks = options_.ranks;
  try {
    std::erase_if(ranks, [this](int rank) { return state_of(rank) == kFinished; });
  } catch (const std::exception&) {
    return options_.ranks;
  }
  return ranks;
}

std::string MeetingStore::get(const std::string& key, Deadline deadline) {
  if (finished_) return store_->get(key, deadline);
  const auto since = Clock::now();
  for (;;) {
    const Deadline slice = earlier(deadline, Deadline::in(kSlice));
    try {
      return store_->get(key, slice);
    } catch (const PeerError&) {
      if (!slice.passed()) throw;  // the store is lost
    }
    stop_if_a_rank_has_ended();
    if (deadline.passed()) give_up(since);
  }
}

void MeetingStore::stop_if_a_rank_has_ended() {
  const auto ended = ended_.list();
  for (const int rank : options_.ranks)
    if (ended.contains(rank) && state_of(rank) != kFinished)
      throw PeerError(
          "rank {}: {} waits for rank {}, which has ended with exit code 0; all ranks must make the same calls",
          options_.me, options_.operation, rank);
}

void MeetingStore::give_up(Clock::time_point since) {
  std::vector<int> late = options_.ranks;
  std::erase_if(late, [this](int rank) { return !state_of(rank).empty(); });
  if (late.empty()) late = unfinished();
  throw PeerError(
      "rank {}: {} has waited {:.1f} s for rank{} {}; do all ranks call it? A longer timeout: PADDLE_PG_TIMEOUT",
      options_.me, options_.operation, std::chrono::duration<double>(Clock::now() - since).count(),
      late.size() == 1 ? "" : "s", fmt::join(late, ", "));
}

}  // namespace trireme::store
