// The job's store while ranks meet in it. A wait ends early when one of the ranks has ended with exit code 0 and will
// never come; without this it would last until its deadline.
//
//   MeetingStore meeting(store, {.operation = "new_group", .prefix = "comm/0.0/0-1#2/", .me = 0, .ranks = {0, 1}});
//   …                       // every rank sets and gets keys
//   meeting.finish();          // this rank has done its part: it may end now, and the others need not wait for it
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/store/ended_ranks.h"

namespace trireme::store {

/// Passes everything on to the inner store; only get() differs, until finish(). Thread rule: that of the inner store.
class MeetingStore : public Store {
 public:
  struct Options {
    std::string operation;   ///< for messages: "new_group"
    std::string prefix;      ///< of this meeting's own keys; new for each meeting
    int me = 0;              ///< ranks of the world, here and below
    std::vector<int> ranks;  ///< all that meet
    int attempt = 0;         ///< of the job, for EndedRanks
  };

  MeetingStore(std::shared_ptr<Store> store, Options options);

  /// PeerError when the deadline passes, naming the ranks that have not come; and when a rank that has not finished its
  /// part has ended, naming that rank.
  std::string get(const std::string& key, Deadline deadline) override;
  void finish();
  /// The ranks that have not finished; all of them where the store is lost.
  std::vector<int> unfinished() noexcept;

  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::optional<std::string> try_get(const std::string& key) override { return store_->try_get(key); }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override {
    return store_->compare_set(key, expected, desired);
  }
  bool remove(const std::string& key) override { return store_->remove(key); }
  std::map<std::string, std::string> list(const std::string& prefix) override { return store_->list(prefix); }

 private:
  std::string state_of(int rank);
  void tell(const char* state);
  void stop_if_a_rank_has_ended();
  [[noreturn]] void give_up(Clock::time_point since);

  const std::shared_ptr<Store> store_;
  const Options options_;
  EndedRanks ended_;
  std::atomic<bool> finished_ = false;
};

}  // namespace trireme::store
