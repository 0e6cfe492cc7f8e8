// What happens when the ranks do not do the same thing at the same time. Ranks are threads here; process_test kills
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <array>

#include "trireme/comm/engine/shm/test_ranks.h"

namespace trireme::comm::shm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::with_group;

// Each rank calls its own thing; returns what each was told.
template <typename ErrorType>
std::vector<std::string> messages(int ranks, Clock::duration timeout, const std::function<void(Group&)>& call) {
  std::vector<std::string> all(static_cast<size_t>(ranks));
  with_group(
      ranks, 4096,
      [&](Group& group) { all[static_cast<size_t>(group.rank())] = message_of<ErrorType>([&] { call(group); }); },
      timeout);
  return all;
}

TEST(Mismatch, OfTheKindIsToldToEveryone) {
  for (const std::string& text : messages<UsageError>(4, 60s, [](Group& group) {
         float data[1024] = {};
         if (group.rank() == 3)
           group.broadcast(data, 8, DType::f32, 1);
         else
           group.all_reduce(data, 1024, DType::f32, ReduceOp::sum);
       }))
    EXPECT_THAT(text, HasSubstr("rank 0: all_reduce #1 float[1024] sum but rank 3: broadcast #1 float[8] from rank 1"));
}

TEST(Mismatch, OfTheSizeIsFoundBeforeTheWaysPart) {
  for (const std::string& text : messages<UsageError>(2, 60s, [](Group& group) {
         std::vector<float> data(100000);  // rank 1 would take many rounds, rank 0 one
         group.all_reduce(data.data(), group.rank() == 0 ? 1 : data.size(), DType::f32, ReduceOp::sum);
       }))
    EXPECT_THAT(text, AllOf(HasSubstr("float[1] "), HasSubstr("float[100000] ")));
}

// Six elements each, so that only the shapes tell that something is wrong.
TEST(Mismatch, OfTheShapeIsToldToEveryoneWithBothShapes) {
  const auto shape = [](const Group& group) {
    return Dims(group.rank() == 2 ? std::vector<int64_t>{3, 2} : std::vector<int64_t>{2, 3});
  };
  for (const std::string& text : messages<UsageError>(3, 60s, [&](Group& group) {
         float data[6] = {};
         group.all_reduce(data, shape(group), DType::f32, ReduceOp::sum);
       }))
    EXPECT_THAT(text, HasSubstr("rank 0: all_reduce #1 float[2, 3] sum but rank 2: all_reduce #1 float[3, 2] sum"));
  for (const std::string& text : messages<UsageError>(3, 60s, [&](Group& group) {
         float data[6] = {};
         group.broadcast(data, shape(group), DType::f32, 0);
       }))
    EXPECT_THAT(text, HasSubstr("float[2, 3] from rank 0 but rank 2: broadcast #1 float[3, 2]"));
}

TEST(Mismatch, OfTypeOperationRootAndPartsIsFound) {
  const std::array<std::function<void(Group&)>, 9> calls = {
      [](Group& group) {
        int64_t data = 0;
        group.all_reduce(&data, 1, group.rank() == 0 ? DType::i64 : DType::f64, ReduceOp::sum);
      },
      [](Group& group) {
        int64_t data = 0;
        group.all_reduce(&data, 1, DType::i64, group.rank() == 0 ? ReduceOp::min : ReduceOp::max);
      },
      [](Group& group) {
        int64_t data = 0;
        group.broadcast(&data, 1, DType::i64, group.rank());
      },
      [](Group& group) {
        int64_t data = 0, out[3] = {};
        const std::array<size_t, 2> sizes =
            group.rank() == 0 ? std::array<size_t, 2>{1, 2} : std::array<size_t, 2>{2, 1};
        group.all_gather(&data, sizes, DType::i64, out);
      },
      [](Group& group) {
        int64_t data = 0;
        group.reduce(&data, 1, DType::i64, ReduceOp::sum, group.rank());
      },
      [](Group& group) {
        int64_t data[2] = {};
        const std::array<size_t, 2> sizes = {1, 1};
        group.gather(data, sizes, DType::i64, data, group.rank());
      },
      [](Group& group) {
        int64_t data[4] = {}, out[4] = {};
        const std::array<size_t, 2> sizes = {1, group.rank() == 0 ? size_t{2} : size_t{3}};
        group.scatter(data, sizes, DType::i64, out, 0);
      },
      [](Group& group) {
        int64_t data[4] = {}, out[4] = {};
        const std::array<size_t, 2> sizes = {group.rank() == 0 ? size_t{2} : size_t{3}, 1};
        group.reduce_scatter(data, sizes, DType::i64, ReduceOp::sum, out);
      },
      [](Group& group) {
        int64_t data[2] = {}, out[2] = {};
        const std::array<size_t, 2> sizes = {1, 1};
        group.all_to_all(data, sizes, group.rank() == 0 ? DType::i64 : DType::f64, out, sizes);
      }};
  for (const auto& call : calls)
    for (const std::string& text : messages<UsageError>(2, 60s, call)) EXPECT_THAT(text, HasSubstr(" but rank 1: "));
}

TEST(Mismatch, OfWhatTwoRanksExchangeIsToldToAllWithBothNumbers) {
  for (const std::string& text : messages<UsageError>(4, 60s, [](Group& group) {
         std::vector<float> input(40), output(40);
         std::vector<size_t> sent(4, 5), received(4, 5);
         if (group.rank() == 3) sent[1] = 7;
         group.all_to_all(input.data(), sent, DType::f32, output.data(), received);
       }))
    EXPECT_THAT(text, HasSubstr("all_to_all #1 float: rank 3 sends 7 elements to rank 1 but rank 1 expects 5"));
}

TEST(Mismatch, EndsTheGroup) {
  with_group(2, 4096, [](Group& group) {
    int32_t data = 0;
    EXPECT_THROW(group.all_reduce(&data, 1, group.rank() ? DType::i32 : DType::f32, ReduceOp::sum), UsageError);
    EXPECT_THAT(message_of<PeerError>([&] { group.barrier(); }), HasSubstr("int32[1]"));
  });
}

TEST(Arguments, AreCheckedBeforeAnyoneIsInvolved) {
  with_group(2, 4096, [](Group& group) {
    int32_t data = 1;
    EXPECT_THROW(group.all_reduce(&data, 1, DType::i32, ReduceOp::avg), UsageError);
    EXPECT_THAT(message_of<UsageError>([&] { group.broadcast(&data, 1, DType::i32, 2); }), HasSubstr("ranks 0 to 1"));
    EXPECT_THAT(message_of<UsageError>([&] { group.all_gather(&data, {}, DType::i32, &data); }),
                HasSubstr("0 sizes for 2 ranks"));
    EXPECT_THROW(group.reduce(&data, 1, DType::i32, ReduceOp::avg, 0), UsageError);
    EXPECT_THAT(message_of<UsageError>([&] { group.reduce(&data, 1, DType::i32, ReduceOp::sum, 2); }),
                HasSubstr("reduce to rank 2, but the group has ranks 0 to 1"));
    const std::vector<size_t> two(2, 1), three(3, 1);
    EXPECT_THROW(group.gather(&data, two, DType::i32, &data, -1), UsageError);
    EXPECT_THROW(group.gather(&data, three, DType::i32, &data, 0), UsageError);
    EXPECT_THROW(group.scatter(&data, two, DType::i32, &data, 2), UsageError);
    EXPECT_THROW(group.scatter(&data, three, DType::i32, &data, 0), UsageError);
    EXPECT_THROW(group.reduce_scatter(&data, two, DType::i32, ReduceOp::avg, &data), UsageError);
    EXPECT_THROW(group.reduce_scatter(&data, three, DType::i32, ReduceOp::sum, &data), UsageError);
    EXPECT_THROW(group.all_to_all(&data, three, DType::i32, &data, two), UsageError);
    EXPECT_THROW(group.all_to_all(&data, two, DType::i32, &data, three), UsageError);
    EXPECT_THAT(message_of<UsageError>([&] { group.send(&data, 1, DType::i32, 1 - group.rank()); }),
                HasSubstr("use join()"));
    group.all_reduce(&data, 1, DType::i32, ReduceOp::sum);
    EXPECT_EQ(data, 2) << "the group still works";
  });
}

TEST(Arguments, MembershipIsChecked) {
  const auto segment = testing::make_segment(1, 4096);
  for (const RankInfo me : {RankInfo{0, 0}, RankInfo{1, 1}, RankInfo{-1, 1}, RankInfo{0, 2}, RankInfo{0, 257}})
    EXPECT_THROW(Group(segment, {.me = me}, {}), UsageError) << me.rank << " of " << me.size;
}

TEST(Timeout, NamesTheMissingRankAndWhatItDidLast) {
  const auto segment = testing::make_segment(2, 4096);
  Group slow(segment, {.me = {1, 2}}, {});
  Group group(segment, {.me = {0, 2}}, {.timeout = 30ms});
  int32_t data = 0;
  const std::string text = message_of<PeerError>([&] { group.all_reduce(&data, 1, DType::i32, ReduceOp::sum); });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0: all_reduce #1 int32[1] sum, after "),
                          HasSubstr("timeout of 30 ms: rank 1"), HasSubstr("the last it began is #0")));
  EXPECT_EQ(message_of<PeerError>([&] { group.barrier(); }), text) << "the group is of no more use";
  EXPECT_THAT(message_of<PeerError>([&] { slow.barrier(); }), HasSubstr("timeout of 30 ms: rank 1"));
}

TEST(Timeout, IsAPeerErrorWithFields) {
  const auto segment = testing::make_segment(2, 4096);
  Group group(segment, {.me = {0, 2}, .group = "pair", .names = {4, 7}}, {.timeout = 30ms});
  int32_t data = 0;
  try {
    group.all_reduce(&data, 1, DType::i32, ReduceOp::sum);
    FAIL() << "nobody came";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 7) << "as the ranks of this group are called";
    EXPECT_EQ(error.operation(), "all_reduce");
    EXPECT_EQ(error.sequence(), 1u);
    EXPECT_EQ(error.group(), "pair");
    EXPECT_THAT(error.reason(), StartsWith("timeout of 30 ms: rank 7"));
    EXPECT_THAT(error.what(), StartsWith("rank 4: all_reduce #1 int32[1] sum, after "));
  }
}

// A profiler's timer interrupts every sleep before a slice is over.
TEST(Timeout, ComesDespiteSignals) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 5000}, {0, 5000}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const auto segment = testing::make_segment(2, 4096);
  Group group(segment, {.me = {0, 2}}, {.timeout = 120ms});
  EXPECT_THAT(message_of<PeerError>([&] { group.barrier(); }), HasSubstr("timeout of 120 ms: rank 1"));
  ::setitimer(ITIMER_REAL, &never, nullptr);
}

TEST(Leaving, IsNoticedByThoseWhoStillWait) {
  for (const std::string& text : messages<PeerError>(3, 60s, [](Group& group) {
         group.barrier();
         if (group.rank() == 2) throw PeerError("rank 2 itself");
         for (;;) group.barrier();
       }))
    EXPECT_THAT(text, HasSubstr("rank 2"));
}

TEST(Leaving, AfterTheLastPublicationHarmsNobody) {
  for (int i = 0; i < 200; ++i) {
    const auto segment = testing::make_segment(2, 4096);
    testing::in_threads(2, [&](int rank) {
      Group group(segment, {.me = {rank, 2}}, {.timeout = 60s});
      int32_t data = rank;
      group.all_reduce(&data, 1, DType::i32, ReduceOp::sum);
      EXPECT_EQ(data, 1);
    });
  }
}

TEST(Abort, WakesWhoWaits) {
  const auto segment = testing::make_segment(2, 4096);
  Group group(segment, {.me = {0, 2}}, {.timeout = 60s});
  Group other(segment, {.me = {1, 2}}, {.timeout = 60s});
  std::string text;
  std::thread waiter([&] { text = message_of<PeerError>([&] { group.barrier(); }); });
  EXPECT_TRUE(eventually([&] { return segment->control(1).sleepers == 1; }));
  const auto begin = Clock::now();
  other.abort("the user pressed Ctrl-C");
  waiter.join();
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_THAT(text, HasSubstr("rank 1 aborted the group: the user pressed Ctrl-C"));
  EXPECT_THAT(message_of<PeerError>([&] { other.barrier(); }), HasSubstr("Ctrl-C")) << "and the aborting rank itself";
}

TEST(Abort, WhoClaimedItAndDiedBeforeSayingWhyIsNotAwaited) {
  const auto segment = testing::make_segment(1, 4096);
  Group group(segment, {.me = {0, 1}}, {});
  segment->header().abort_state = SegmentHeader::claimed;
  EXPECT_THAT(message_of<PeerError>([&] { group.barrier(); }), HasSubstr("a rank has aborted the group"));
}

TEST(Abort, TheFirstReasonStaysAndLongOnesAreCut) {
  const auto segment = testing::make_segment(1, 4096);
  Group group(segment, {.me = {0, 1}}, {});
  group.abort(std::string(5000, 'x'));
  group.abort("second");
  const std::string text = message_of<PeerError>([&] { group.barrier(); });
  EXPECT_THAT(text, HasSubstr("xxx"));
  EXPECT_LT(text.size(), 1200u);
}

TEST(Threads, ASecondOneInTheSameGroupIsAnError) {
  const auto segment = testing::make_segment(2, 4096);
  Group group(segment, {.me = {0, 2}}, {.timeout = 60s});
  Group other(segment, {.me = {1, 2}}, {.timeout = 60s});
  std::thread first([&] { group.barrier(); });
  EXPECT_TRUE(eventually([&] { return segment->control(1).sleepers == 1; }));
  EXPECT_THAT(message_of<UsageError>([&] { group.barrier(); }), HasSubstr("two threads"));
  other.barrier();
  first.join();
}

}  // namespace
}  // namespace trireme::comm::shm
