// The engine is a thin face of shm::Group, whose own tests go into types and sizes. Here: that every call reaches the
// right collective with its arguments in the right places. Ranks are threads with a MemoryStore between them.
#include "trireme/comm/engine/shm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/store/memory_store.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Numbers = std::vector<int32_t>;

constexpr int kShmRanks = 3;

void with_engines(const std::function<void(Engine&)>& body) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::string> errors(kShmRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kShmRanks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const shm::Group::Options options{.name = "test", .me = {rank, kShmRanks}, .piece_bytes = 4096, .timeout = 60s};
        body(*make_shm_engine(store, options, Deadline::in(30s)));
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(ShmEngine, KnowsItsNameAndItself) {
  with_engines([](Engine& engine) {
    EXPECT_STREQ(engine.name(), "shm");
    EXPECT_EQ(engine.me().size, kShmRanks);
    int32_t rank = engine.me().rank;
    engine.all_reduce(&rank, 1, DType::i32, ReduceOp::sum);
    EXPECT_EQ(rank, 0 + 1 + 2);
  });
}

TEST(ShmEngine, ReducesToOne) {
  with_engines([](Engine& engine) {
    const int me = engine.me().rank;
    Numbers data = {me, 10};
    engine.reduce(data.data(), data.size(), DType::i32, ReduceOp::max, 1);
    EXPECT_EQ(data, me == 1 ? (Numbers{2, 10}) : (Numbers{me, 10}));
  });
}

TEST(ShmEngine, Broadcasts) {
  with_engines([](Engine& engine) {
    Numbers data = {engine.me().rank, 7};
    engine.broadcast(data.data(), data.size(), DType::i32, 2);
    EXPECT_EQ(data, (Numbers{2, 7}));
  });
}

// Rank k gives k+1 numbers k.
const std::vector<size_t> kCounts = {1, 2, 3};
const Numbers kAll = {0, 1, 1, 2, 2, 2};

Numbers own(const Engine& engine) {
  const int me = engine.me().rank;
  return Numbers(kCounts[static_cast<size_t>(me)], me);
}

TEST(ShmEngine, Gathers) {
  with_engines([](Engine& engine) {
    Numbers everywhere(6, -1), at_root(6, -1);
    engine.all_gather(own(engine).data(), kCounts, DType::i32, everywhere.data());
    EXPECT_EQ(everywhere, kAll);
    const bool root = engine.me().rank == 2;
    engine.gather(own(engine).data(), kCounts, DType::i32, root ? at_root.data() : nullptr, 2);
    EXPECT_EQ(at_root, root ? kAll : Numbers(6, -1));
  });
}

TEST(ShmEngine, Scatters) {
  with_engines([](Engine& engine) {
    Numbers part(own(engine).size(), -1);
    engine.scatter(engine.me().rank == 1 ? kAll.data() : nullptr, kCounts, DType::i32, part.data(), 1);
    EXPECT_EQ(part, own(engine));
  });
}

TEST(ShmEngine, ReducesAndScatters) {
  with_engines([](Engine& engine) {
    Numbers part(own(engine).size(), -1);
    engine.reduce_scatter(kAll.data(), kCounts, DType::i32, ReduceOp::sum, part.data());
    EXPECT_EQ(part, Numbers(part.size(), 3 * engine.me().rank));
  });
}

// Rank j sends to rank k as many numbers 10 j + k as k is.
TEST(ShmEngine, ExchangesAllToAll) {
  with_engines([](Engine& engine) {
    const int me = engine.me().rank;
    const std::vector<size_t> sent = {0, 1, 2}, received(kShmRanks, static_cast<size_t>(me));
    const Numbers input = {10 * me + 1, 10 * me + 2, 10 * me + 2};
    Numbers output(received.size() * received[0], -1), expected;
    for (int from = 0; from < kShmRanks; ++from) expected.insert(expected.end(), received[0], 10 * from + me);
    engine.all_to_all(input.data(), sent, DType::i32, output.data(), received);
    EXPECT_EQ(output, expected);
  });
}

TEST(ShmEngine, SendsBesideACollective) {
  with_engines([](Engine& engine) {
    const int me = engine.me().rank, next = (me + 1) % kShmRanks, before = (me + kShmRanks - 1) % kShmRanks;
    Numbers received(2000);
    std::thread sender([&] { engine.send(Numbers(2000, me).data(), 2000, DType::i32, next); });
    std::thread receiver([&] { engine.recv(received.data(), 2000, DType::i32, before); });
    engine.barrier();
    sender.join();
    receiver.join();
    EXPECT_EQ(received, Numbers(2000, before));
  });
}

TEST(ShmEngine, AnAbortEndsWhatIsUnderWayOnEveryRank) {
  with_engines([](Engine& engine) {
    int32_t data = 0;
    if (engine.me().rank == 0) engine.abort("stop it");
    try {
      if (engine.me().rank == 1) engine.recv(&data, 1, DType::i32, 2);
      engine.barrier();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 aborted the group: stop it"));
    }
  });
}

}  // namespace
}  // namespace trireme
