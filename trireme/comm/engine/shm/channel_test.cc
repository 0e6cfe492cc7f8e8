// Messages between two ranks. Ranks are threads with a store between them; process_test kills them.
#include "trireme/comm/engine/shm/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/comm/engine/shm/identity.h"
#include "trireme/comm/engine/shm/test_ranks.h"
#include "trireme/store/memory_store.h"

namespace trireme::comm::shm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::in_threads;
using testing::random_values;

constexpr size_t kChannelPiece = 1024;

void with_joined_group(int ranks, const std::function<void(Group&)>& body, Clock::duration timeout = 60s) {
  const auto store = std::make_shared<store::MemoryStore>();
  in_threads(ranks, [&](int rank) {
    const Group::Options options{.name = "g",
                                 .member = {.me = {rank, ranks}},
                                 .piece_bytes = kChannelPiece,
                                 .timeout = timeout,
                                 .files = {FileKind::anonymous}};
    body(*Group::join(store, options, Deadline::in(30s)));
  });
}

TEST(Channels, MessagesOfEverySizeAndTypeArriveInOrder) {
  with_joined_group(2, [](Group& group) {
    for (const DType dtype : kDTypes)
      for (const size_t elements : {0u, 1u, 7u, 1023u, 1024u, 1025u, 5000u}) {
        const Bytes expected = random_values(dtype, elements, elements);
        Bytes data = group.rank() == 0 ? expected : Bytes(expected.size());
        if (group.rank() == 0)
          group.send(data.data(), elements, dtype, 1);
        else
          group.recv(data.data(), elements, dtype, 0);
        ASSERT_EQ(data, expected) << to_string(dtype) << "[" << elements << "]";
      }
  });
}

// Every rank talks to every other in both directions, each direction in a thread of its own, beside collectives.
TEST(Channels, AllPairsAtOnceBesideCollectives) {
  constexpr int kRanks = 4, kMessages = 30;
  with_joined_group(kRanks, [](Group& group) {
    const auto values = [](int from, int to, int i) {
      return random_values(DType::i32, static_cast<size_t>(i * 37 % 600), static_cast<size_t>(from * 10 + to));
    };
    in_threads(2 * kRanks + 1, [&](int task) {
      const int peer = task / 2;
      for (int i = 0; i < kMessages; ++i) {
        if (task == 2 * kRanks) {
          int32_t sum = group.rank();
          group.all_reduce(&sum, 1, DType::i32, ReduceOp::sum);
          ASSERT_EQ(sum, 6);
        } else if (peer != group.rank() && task % 2 == 0) {
          const Bytes data = values(group.rank(), peer, i);
          group.send(data.data(), data.size() / 4, DType::i32, peer);
        } else if (peer != group.rank()) {
          const Bytes expected = values(peer, group.rank(), i);
          Bytes data(expected.size());
          group.recv(data.data(), data.size() / 4, DType::i32, peer);
          ASSERT_EQ(data, expected);
        }
      }
    });
  });
}

TEST(Channels, AMismatchIsToldToBothEndsAndEndsTheGroup) {
  with_joined_group(3, [](Group& group) {
    float data[16] = {};
    std::string text;
    if (group.rank() == 2) text = message_of<UsageError>([&] { group.send(data, 10, DType::f32, 1); });
    if (group.rank() == 1) text = message_of<UsageError>([&] { group.recv(data, 8, DType::i32, 2); });
    if (group.rank() == 0) text = message_of<PeerError>([&] { group.barrier(); });
    EXPECT_THAT(text,
                HasSubstr("message #1 from rank 2 to rank 1: rank 2 sends float[10] but rank 1 expects int32[8]"));
    EXPECT_THROW(group.barrier(), PeerError);
    EXPECT_THROW(group.send(data, 1, DType::f32, (group.rank() + 1) % 3), PeerError);
  });
}

TEST(Channels, ArgumentsAreCheckedBeforeAnyoneIsInvolved) {
  with_joined_group(2, [](Group& group) {
    int32_t data = group.rank();
    EXPECT_THAT(message_of<UsageError>([&] { group.send(&data, 1, DType::i32, group.rank()); }), HasSubstr("itself"));
    EXPECT_THAT(message_of<UsageError>([&] { group.recv(&data, 1, DType::i32, 2); }), HasSubstr("ranks 0 to 1"));
    EXPECT_THROW(group.send(&data, 1, DType::i32, -1), UsageError);
    group.all_reduce(&data, 1, DType::i32, ReduceOp::sum);
    EXPECT_EQ(data, 1) << "the group still works";
  });
}

TEST(Channels, AfterAFailedCollectiveNothingIsSent) {
  with_joined_group(2, [](Group& group) {
    int32_t data = 0;
    EXPECT_THROW(group.all_reduce(&data, 1, group.rank() ? DType::i32 : DType::f32, ReduceOp::sum), UsageError);
    EXPECT_THAT(message_of<PeerError>([&] { group.send(&data, 1, DType::i32, 1 - group.rank()); }),
                HasSubstr("float[1] sum but rank 1"));
  });
}

// Rank 1 never answers.
TEST(Channels, AnAbsentEndIsNamedAfterTheTimeout) {
  with_joined_group(
      2,
      [](Group& group) {
        int32_t data = 0;
        if (group.rank() == 1) {
          EXPECT_TRUE(eventually([&] {
            try {
              group.barrier();
              return false;
            } catch (const PeerError&) {
              return true;
            }
          }));
          return;
        }
        EXPECT_THAT(
            message_of<PeerError>([&] { group.recv(&data, 1, DType::i32, 1); }),
            AllOf(HasSubstr("rank 0: message int32[1] from rank 1 to rank 0"), HasSubstr("lives but has not come")));
      },
      200ms);
}

// Of an open channel as of one that has still to be opened.
class WaitingEnd : public ::testing::TestWithParam<bool> {
 protected:
  static void open(Group& group) {
    if (!GetParam()) return;
    int32_t data = 0;
    if (group.rank() == 0) group.recv(&data, 1, DType::i32, 1);
    if (group.rank() == 1) group.send(&data, 1, DType::i32, 0);
    group.barrier();
  }
};

TEST_P(WaitingEnd, IsWokenByAnAbort) {
  with_joined_group(3, [](Group& group) {
    open(group);
    int32_t data = 0;
    if (group.rank() == 2) group.abort("the user pressed Ctrl-C");
    const std::string text = message_of<PeerError>([&] {
      if (group.rank() == 0) group.recv(&data, 1, DType::i32, 1);
      group.barrier();
    });
    EXPECT_THAT(text, HasSubstr("rank 2 aborted the group: the user pressed Ctrl-C"));
  });
}

TEST_P(WaitingEnd, IsToldThatTheOtherHasLeft) {
  with_joined_group(2, [](Group& group) {
    open(group);
    int32_t data = 0;
    if (group.rank() == 1) return;
    EXPECT_THAT(message_of<PeerError>([&] { group.recv(&data, 1, DType::i32, 1); }),
                AllOf(HasSubstr("rank 1 (process "), HasSubstr("left the group")));
  });
}

INSTANTIATE_TEST_SUITE_P(Channel, WaitingEnd, ::testing::Bool());

// Tells when a receiver looks for the memory of a channel.
class Listening : public store::MemoryStore {
 public:
  std::optional<std::string> try_get(const std::string& key) override {
    if (key.find("channel/1/0/") != std::string::npos) asked = true;
    return store::MemoryStore::try_get(key);
  }
  std::atomic<bool> asked = false;
};

Operation message_of_one(int from, int to) {
  return {.kind = Kind::message, .dtype = DType::i32, .root = from, .to = to, .dims = 1};
}

void transfer(Channels& channels, int from, int to, int32_t& data) {
  channels.transfer(message_of_one(from, to), reinterpret_cast<std::byte*>(&data));
}

TEST(Channels, ASecondThreadInOneIsAnError) {
  const auto store = std::make_shared<Listening>();
  const auto segment = testing::make_segment(2, kChannelPiece);
  Channels receiver({.store = store, .prefix = "", .group = segment, .me = {0, 2}});
  Channels sender({.store = store, .prefix = "", .group = segment, .me = {1, 2}});
  int32_t first = 0, second = 0, sent = 5;
  std::thread waits([&] { transfer(receiver, 1, 0, first); });
  EXPECT_TRUE(eventually([&] { return store->asked.load(); }));
  EXPECT_THAT(message_of<UsageError>([&] { transfer(receiver, 1, 0, second); }),
              HasSubstr("two threads use the channel from rank 1 to rank 0"));
  transfer(sender, 1, 0, sent);
  waits.join();
  EXPECT_EQ(first, 5);
}

TEST(Channels, AnEndThatDiedBeforeItsFirstMessageIsNamed) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto segment = testing::make_segment(2, kChannelPiece);
  segment->control(1).start_time = start_time_of(child).value();
  segment->control(1).pid = child;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  Channels channels({.store = std::make_shared<store::MemoryStore>(), .prefix = "", .group = segment, .me = {0, 2}});
  int32_t data = 0;
  const std::string text = message_of<PeerError>([&] { transfer(channels, 1, 0, data); });
  EXPECT_THAT(text, HasSubstr(fmt::format("rank 1 (process {}) died", child)));
  EXPECT_THAT(message_of<PeerError>([&] { transfer(channels, 0, 1, data); }), HasSubstr("died"));
}

TEST(Channels, AnEndWithoutMemoryTellsTheOther) {
  const auto segment = testing::make_segment(2, kChannelPiece);
  const Channels::Options options{.store = std::make_shared<store::MemoryStore>(),
                                  .prefix = "",
                                  .group = segment,
                                  .piece_bytes = size_t{1} << 50,
                                  .files = {FileKind::named}};
  int32_t data = 0;
  in_threads(2, [&](int rank) {
    Channels::Options mine = options;
    mine.me = {rank, 2};
    Channels channels(mine);
    if (rank == 0) {
      EXPECT_THROW(transfer(channels, 0, 1, data), SystemError);
    } else {
      EXPECT_THAT(message_of<PeerError>([&] { transfer(channels, 0, 1, data); }),
                  AllOf(HasSubstr("no channel from rank 0 to rank 1"), HasSubstr("has no shared memory")));
    }
  });
  EXPECT_TRUE(testing::nothing_left());
}

}  // namespace
}  // namespace trireme::comm::shm
