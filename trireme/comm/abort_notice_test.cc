#include "trireme/comm/abort_notice.h"

#include <gmock/gmock.h>

#include <future>

#include "trireme/core/error.h"
#include "trireme/store/memory_store.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

TEST(AbortNotice, ReachesWhoWaits) {
  const auto store = std::make_shared<MemoryStore>();
  std::promise<std::string> heard;
  AbortNotice giver(store, "key", [](const std::string&) {});
  AbortNotice listener(store, "key", [&](const std::string& reason) { heard.set_value(reason); });
  const AbortNotice::Waiting waiting(listener);
  giver.give("rank 2 died");
  giver.give("rank 3 died");  // the first stays
  auto reason = heard.get_future();
  ASSERT_EQ(reason.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(reason.get(), "rank 2 died");
}

// Counts how often it is asked.
class CountingStore : public MemoryStore {
 public:
  std::optional<std::string> try_get(const std::string& key) override {
    if (++asked_ == 2) twice_.set_value();
    return MemoryStore::try_get(key);
  }
  int asked() const { return asked_; }
  std::promise<void> twice_;

 private:
  std::atomic<int> asked_ = 0;
};

TEST(AbortNotice, AsksOnlyWhileSomethingWaits) {
  const auto store = std::make_shared<CountingStore>();
  {
    AbortNotice notice(store, "key", [](const std::string&) { FAIL() << "nobody has given up"; });
    { const AbortNotice::Waiting done(notice); }
    EXPECT_EQ(store->twice_.get_future().wait_for(600ms), std::future_status::timeout);
    EXPECT_EQ(store->asked(), 0);
  }
  AbortNotice notice(store, "key", [](const std::string&) {});
  const AbortNotice::Waiting waiting(notice);
  std::promise<void> twice;
  store->twice_.swap(twice);
  EXPECT_EQ(store->twice_.get_future().wait_for(10s), std::future_status::ready);
}

TEST(AbortNotice, WhoIsStuckLooksForTheDeadAndTellsTheOthers) {
  const auto store = std::make_shared<MemoryStore>();
  std::promise<std::string> heard, told;
  std::atomic<int> turns = 0;
  AbortNotice finder(
      store, "key", [&](const std::string& reason) { heard.set_value(reason); },
      [&](size_t turn) { return ++turns == static_cast<int>(turn) && turn == 2 ? "rank 2 died" : ""; });
  AbortNotice other(store, "key", [&](const std::string& reason) { told.set_value(reason); });
  const AbortNotice::Waiting stuck(finder), also_stuck(other);
  for (std::promise<std::string>* promise : {&heard, &told}) {
    auto reason = promise->get_future();
    ASSERT_EQ(reason.wait_for(20s), std::future_status::ready);
    EXPECT_EQ(reason.get(), "rank 2 died");
  }
}

// The server is gone.
class LostStore : public MemoryStore {
 public:
  std::string compare_set(const std::string&, std::string_view, std::string_view) override { throw PeerError("lost"); }
  std::optional<std::string> try_get(const std::string&) override { throw PeerError("lost"); }
};

TEST(AbortNotice, ALostStoreIsNoError) {
  AbortNotice notice(std::make_shared<LostStore>(), "key", [](const std::string&) {});
  notice.give("rank 2 died");
}

}  // namespace
}  // namespace trireme
