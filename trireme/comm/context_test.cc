#include "trireme/comm/context.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/store/memory_store.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Card card_of(const std::string& boot_id) {
  Card card{.process = shm::this_process(), .host = "node1", .address = "10.0.0.1", .beacon = {"10.0.0.1", 4711}};
  card.process.host.boot_id = boot_id;
  return card;
}

TEST(Card, SurvivesTheStore) {
  Card card = card_of("a-boot");
  card.gpu = "GPU-1234";
  card.beacon = {"fd77::1", 4711};
  const Card copy = decode_card(encode(card));
  EXPECT_EQ(copy.process.host, card.process.host);
  EXPECT_EQ(copy.process.pid, card.process.pid);
  EXPECT_EQ(copy.host, "node1");
  EXPECT_EQ(copy.address, "10.0.0.1");
  EXPECT_EQ(to_string(copy.beacon), "[fd77::1]:4711");
  EXPECT_EQ(copy.gpu, "GPU-1234");
}

TEST(Card, NoiseIsAPeerError) {
  EXPECT_THROW(decode_card(""), PeerError);
  EXPECT_THROW(decode_card("a\nb\nc"), PeerError);
}

TEST(HostsOf, CountsInOrderOfAppearance) {
  const std::vector<Card> cards = {card_of("x"), card_of("y"), card_of("x"), card_of("z")};
  EXPECT_THAT(hosts_of(cards, std::vector<int>{0, 1, 2, 3}), ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(hosts_of(cards, std::vector<int>{3, 1, 0}), ElementsAre(0, 1, 2));
  EXPECT_THAT(hosts_of(cards, std::vector<int>{2, 0}), ElementsAre(0, 0));
}

TEST(Context, RanksGetEachOthersCards) {
  const auto store = std::make_shared<store::MemoryStore>();
  std::vector<std::shared_ptr<Context>> contexts(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      contexts[static_cast<size_t>(rank)] = Context::meet({.world = {rank, 3},
                                                           .store = store,
                                                           .address = "127.0.0.1",
                                                           .gpu = "gpu" + std::to_string(rank),
                                                           .timeout = 10s});
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& context : contexts) {
    ASSERT_EQ(context->cards().size(), 3u);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(context->cards()[static_cast<size_t>(rank)].gpu, "gpu" + std::to_string(rank));
  }
  const std::vector<int> all = {0, 1, 2};
  EXPECT_EQ(contexts[0]->blame(all), Blame());
  contexts[1].reset();  // its beacon goes out
  EXPECT_EQ(contexts[0]->blame(all).rank, 1);
  EXPECT_THAT(contexts[0]->blame(all).reason, HasSubstr("rank 1 (process "));
}

TEST(Context, ARankThatDoesNotComeIsAnError) {
  EXPECT_THROW(
      Context::meet(
          {.world = {0, 2}, .store = std::make_shared<store::MemoryStore>(), .address = "127.0.0.1", .timeout = 50ms}),
      PeerError);
}

TEST(Context, GroupsOfTheSameRanksHaveDifferentNames) {
  const auto context = Context::meet({});
  const std::vector<int> pair = {0, 3}, other = {3, 0};
  const std::string first = context->name_group(pair);
  EXPECT_NE(context->name_group(pair), first);
  EXPECT_NE(context->name_group(other), first);
  EXPECT_EQ(Context::meet({})->name_group(pair), first) << "and the same on every member";
}

TEST(Context, GroupsOfManyRanksHaveNamesThatFitIntoKeys) {
  const auto context = Context::meet({});
  std::vector<int> many(4096);
  std::iota(many.begin(), many.end(), 0);
  const std::string first = context->name_group(many);
  EXPECT_LT(first.size(), 200u);
  EXPECT_NE(context->name_group(many), first);
  std::swap(many.front(), many.back());
  EXPECT_NE(Context::meet({})->name_group(many), first);
}

TEST(Context, ALoneProcessNeedsNoStoreToBeChecked) {
  for (const bool compares : {false, true})
    EXPECT_STREQ(Context::meet({.compare_calls = compares})->make_engine("world", std::vector<int>{0})->name(),
                 "local");
}

TEST(Context, SeveralRanksNeedAStore) {
  const auto context = Context::meet({.world = {0, 2}});
  EXPECT_THROW(context->make_engine("world", std::vector<int>{0, 1}), UsageError);
  EXPECT_STREQ(context->make_engine("self", std::vector<int>{0})->name(), "local");
}

}  // namespace
}  // namespace trireme::comm
