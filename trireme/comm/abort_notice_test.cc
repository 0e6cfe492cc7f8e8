#include "trireme/comm/abort_notice.h"

#include <gmock/gmock.h>

#include <future>

#include "trireme/core/error.h"
#include "trireme/store/memory_store.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

TEST(AbortNotice, ReachesWhoWaits) {
  const auto store = std::make_shared<store::MemoryStore>();
  std::promise<Blame> heard;
  AbortNotice giver(store, "key", [](const Blame&) {});
  AbortNotice listener(store, "key", [&](const Blame& blame) { heard.set_value(blame); });
  const AbortNotice::Waiting waiting(listener);
  giver.give({2, "rank 2 died"});
  giver.give({3, "rank 3 died"});  // the first stays
  auto reason = heard.get_future();
  ASSERT_EQ(reason.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(reason.get(), (Blame{2, "rank 2 died"}));
}

// Counts how often it is asked.
class CountingStore : public store::MemoryStore {
 public:
  std::optional<std::string> try_get(const std::string& key) override {
    if (++asked_ == 2) twice_.set_value();
    return store::MemoryStore::try_get(key);
  }
  int asked() const { return asked_; }
  std::promise<void> twice_;

 private:
  std::atomic<int> asked_ = 0;
};

TEST(AbortNotice, AsksOnlyWhileSomethingWaits) {
  const auto store = std::make_shared<CountingStore>();
  {
    AbortNotice notice(store, "key", [](const Blame&) { FAIL() << "nobody has given up"; });
    { const AbortNotice::Waiting done(notice); }
    EXPECT_EQ(store->twice_.get_future().wait_for(600ms), std::future_status::timeout);
    EXPECT_EQ(store->asked(), 0);
  }
  AbortNotice notice(store, "key", [](const Blame&) {});
  const AbortNotice::Waiting waiting(notice);
  std::promise<void> twice;
  store->twice_.swap(twice);
  EXPECT_EQ(store->twice_.get_future().wait_for(10s), std::future_status::ready);
}

TEST(AbortNotice, WhoIsStuckLooksForTheDeadAndTellsTheOthers) {
  const auto store = std::make_shared<store::MemoryStore>();
  std::promise<Blame> heard, told;
  std::atomic<int> turns = 0;
  AbortNotice finder(
      store, "key", [&](const Blame& blame) { heard.set_value(blame); },
      [&](size_t turn) {
        return ++turns == static_cast<int>(turn) && turn == 2 ? Blame{2, "rank 2 died"} : Blame{};
      });
  AbortNotice other(store, "key", [&](const Blame& blame) { told.set_value(blame); });
  const AbortNotice::Waiting stuck(finder), also_stuck(other);
  for (std::promise<Blame>* promise : {&heard, &told}) {
    auto reason = promise->get_future();
    ASSERT_EQ(reason.wait_for(20s), std::future_status::ready);
    EXPECT_EQ(reason.get(), (Blame{2, "rank 2 died"}));
  }
}

// The server is gone.
class LostStore : public store::MemoryStore {
 public:
  std::string compare_set(const std::string&, std::string_view, std::string_view) override { throw PeerError("lost"); }
  std::optional<std::string> try_get(const std::string&) override { throw PeerError("lost"); }
};

TEST(AbortNotice, ALostStoreIsNoError) {
  AbortNotice notice(std::make_shared<LostStore>(), "key", [](const Blame&) {});
  notice.give({2, "rank 2 died"});
}

}  // namespace
}  // namespace trireme::comm
