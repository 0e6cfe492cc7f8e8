// The one contract, on every store.
#include <gmock/gmock.h>

#include <atomic>
#include <ostream>

#include "trireme/store/etcd_store.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/test_support.h"

namespace trireme::store {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

/// Where stores come from: every join() is another process's view of the same content.
class World {
 public:
  virtual ~World() = default;
  virtual std::shared_ptr<Store> join() = 0;
  virtual size_t largest_value() const { return Store::kMaxValue; }
  virtual int adds_per_thread() const { return 200; }
};

class MemoryWorld : public World {
 public:
  std::shared_ptr<Store> join() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

class TcpWorld : public World {
 public:
  std::shared_ptr<Store> join() override { return testing::join(server_, token_); }

 private:
  Token token_ = Token::random();
  TcpStoreServer server_{listen_tcp("127.0.0.1", 0), {.token = token_}};
};

class EtcdWorld : public World {
 public:
  std::shared_ptr<Store> join() override {
    return std::make_shared<EtcdStore>(
        EtcdStore::Options{.server = etcd_.endpoint(), .prefix = "job 7/", .patience = 30s});
  }
  size_t largest_value() const override { return 1u << 20; }  // etcd's own limit is 1.5 MB a request
  int adds_per_thread() const override { return 10; }         // each is two round trips and a disk write

 private:
  EtcdProcess etcd_;
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<World>()> make;
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class Contract : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<World> world_ = GetParam().make();
  std::shared_ptr<Store> store_ = world_->join();
};

INSTANTIATE_TEST_SUITE_P(, Contract,
                         ::testing::Values(Kind{"memory", [] { return std::make_unique<MemoryWorld>(); }},
                                           Kind{"tcp", [] { return std::make_unique<TcpWorld>(); }},
                                           Kind{"etcd", [] { return std::make_unique<EtcdWorld>(); }}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(Contract, SetThenGet) {
  store_->set("plan", "go");
  EXPECT_EQ(store_->get("plan", Deadline::in(0ms)), "go");
  EXPECT_EQ(world_->join()->try_get("plan"), "go");
  store_->set("plan", "stop");
  EXPECT_EQ(store_->try_get("plan"), "stop");
}

TEST_P(Contract, TryGetOfAnAbsentKey) {
  EXPECT_EQ(store_->try_get("nothing"), std::nullopt);
}

TEST_P(Contract, EmptyValueIsNotAbsent) {
  store_->set("empty", "");
  EXPECT_EQ(store_->try_get("empty"), "");
}

TEST_P(Contract, WaitingGetIsWokenBySet) {
  const auto other = world_->join();
  std::string got;
  std::thread waiter([&] { got = other->get("plan", Deadline::in(20s)); });
  store_->set("unrelated", "x");
  store_->set("plan", "go");
  waiter.join();
  EXPECT_EQ(got, "go");
}

TEST_P(Contract, WaitingGetDoesNotHoldUpItsOwnStore) {
  std::string got;
  std::thread waiter([&] { got = store_->get("last", Deadline::in(20s)); });
  for (int i = 0; i < 20; ++i) store_->add("count", 1);
  store_->set("last", "done");
  waiter.join();
  EXPECT_EQ(got, "done");
}

TEST_P(Contract, AddAndCompareSetWakeWaiters) {
  std::string sum, text;
  std::thread first([&] { sum = store_->get("sum", Deadline::in(20s)); });
  std::thread second([&] { text = store_->get("text", Deadline::in(20s)); });
  store_->compare_set("text", "something else", "x");  // does not match: nobody may be woken by it
  store_->add("sum", 3);
  store_->compare_set("text", "", "new");
  first.join();
  second.join();
  EXPECT_EQ(sum, "3");
  EXPECT_EQ(text, "new");
}

TEST_P(Contract, GetNamesTheKeyAndTheTimeWhenItsDeadlinePasses) {
  const auto since = Clock::now();
  const std::string text = message_of<PeerError>([&] { store_->get("plan", Deadline::in(150ms)); });
  EXPECT_GE(Clock::now() - since, 150ms);
  EXPECT_LT(Clock::now() - since, 15s);
  EXPECT_THAT(text, HasSubstr("plan"));
  EXPECT_THAT(text, HasSubstr("0."));
  EXPECT_EQ(store_->try_get("plan"), std::nullopt);  // and the store goes on
  store_->set("plan", "late");
  EXPECT_EQ(store_->get("plan", Deadline::in(20s)), "late");
}

TEST_P(Contract, AddCounts) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->try_get("n"), "-2");
  store_->set("n", "40");
  EXPECT_EQ(store_->add("n", 2), 42);
}

TEST_P(Contract, AddRefusesWhatIsNoNumber) {
  store_->set("word", "seven");
  EXPECT_THAT(message_of<UsageError>([&] { store_->add("word", 1); }), HasSubstr("seven"));
  store_->set("big", std::to_string(INT64_MAX));
  EXPECT_THAT(message_of<UsageError>([&] { store_->add("big", 1); }), HasSubstr("fit"));
  EXPECT_EQ(store_->try_get("big"), std::to_string(INT64_MAX));
}

TEST_P(Contract, AddFromManyThreadsLosesNothing) {
  constexpr int kThreads = 8;
  const int per_thread = world_->adds_per_thread();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, own = i % 2 ? world_->join() : store_] {
      for (int j = 0; j < per_thread; ++j) own->add("n", 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->add("n", 0), kThreads * per_thread);
}

TEST_P(Contract, CompareSet) {
  EXPECT_EQ(store_->compare_set("leader", "x", "me"), "");  // absent and something expected: stays absent
  EXPECT_EQ(store_->try_get("leader"), std::nullopt);
  EXPECT_EQ(store_->compare_set("leader", "", "me"), "me");
  EXPECT_EQ(store_->compare_set("leader", "", "you"), "me");
  EXPECT_EQ(store_->compare_set("leader", "me", "you"), "you");
  store_->set("leader", "");
  EXPECT_EQ(store_->compare_set("leader", "", "again"), "again");
}

TEST_P(Contract, CompareSetHasOneWinner) {
  constexpr int kThreads = 6;
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, me = std::to_string(i)] { winners += store_->compare_set("leader", "", me) == me; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST_P(Contract, Remove) {
  store_->set("plan", "go");
  EXPECT_TRUE(store_->remove("plan"));
  EXPECT_FALSE(store_->remove("plan"));
  EXPECT_EQ(store_->try_get("plan"), std::nullopt);
}

TEST_P(Contract, ListByPrefix) {
  store_->set("node/1", "a");
  store_->set("node/2", "b");
  store_->set("nodf", "c");
  store_->set("m", "d");
  EXPECT_THAT(store_->list("node/"), ElementsAre(Pair("node/1", "a"), Pair("node/2", "b")));
  EXPECT_EQ(store_->list("").size(), 4u);
  EXPECT_TRUE(store_->list("zzz").empty());
  EXPECT_TRUE(store_->list(std::string(Store::kMaxKey + 1, 'k')).empty());
}

TEST_P(Contract, BinaryKeysAndValues) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::string key("\0\xff/\n", 4);
  store_->set(key, all);
  store_->set("\xff\xff", "end");
  EXPECT_EQ(store_->get(key, Deadline::in(0ms)), all);
  EXPECT_THAT(store_->list(key.substr(0, 2)), ElementsAre(Pair(key, all)));
  EXPECT_THAT(store_->list("\xff"), ElementsAre(Pair("\xff\xff", "end")));
  EXPECT_THAT(message_of<PeerError>([&] { store_->get("\x01\n", Deadline::in(0ms)); }), HasSubstr("\\x01\\x0a"));
}

TEST_P(Contract, TheLargestValuePasses) {
  const std::string value(world_->largest_value(), 'v');
  store_->set("large", value);
  EXPECT_EQ(store_->try_get("large"), value);
}

TEST_P(Contract, KeysAndValuesBeyondTheLimitsAreRefused) {
  const std::string long_key(Store::kMaxKey + 1, 'k');
  EXPECT_THAT(message_of<UsageError>([&] { store_->set(long_key, "x"); }), HasSubstr("1024"));
  EXPECT_THROW(store_->get(long_key, Deadline::in(0ms)), UsageError);
  EXPECT_THROW(store_->set("", "x"), UsageError);
  EXPECT_THROW(store_->add("", 1), UsageError);
  EXPECT_THROW(store_->remove(""), UsageError);
  EXPECT_THROW(store_->try_get(""), UsageError);
  const std::string long_value(Store::kMaxValue + 1, 'v');
  EXPECT_THAT(message_of<UsageError>([&] { store_->set("k", long_value); }), HasSubstr("16777217"));
  EXPECT_THROW(store_->compare_set("k", "", long_value), UsageError);
  EXPECT_THROW(store_->compare_set("k", long_value, ""), UsageError);
  store_->set("k", "still works");
  EXPECT_EQ(store_->try_get("k"), "still works");
}

}  // namespace
}  // namespace trireme::store
