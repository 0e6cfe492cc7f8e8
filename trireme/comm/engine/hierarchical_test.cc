#include "trireme/comm/engine/hierarchical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "trireme/comm/engine/shm/group.h"
#include "trireme/comm/engine/test_engine_ops.h"
#include "trireme/comm/engine/test_thread_engine.h"
#include "trireme/comm/engine/topology.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/store/memory_store.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;
using shm::testing::in_threads;
using shm::testing::kSanitized;
using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::Player;
using testing::ThreadGroup;

// Hosts that exist on paper only: every part's ranks are threads.
class Hosts {
 public:
  explicit Hosts(std::vector<int> host_of, Clock::duration timeout = 50s)
      : host_of_(std::move(host_of)), topology_(host_of_), timeout_(timeout) {}

  int ranks() const { return topology_.ranks(); }

  Hierarchy parts(int rank) {
    Hierarchy parts{.host_of = host_of_};
    parts.inner = part(topology_.members(topology_.host_of(rank)), rank, 1);
    parts.across = part(topology_.column(topology_.place_of(rank)), rank, 2);
    std::vector<int> all;
    for (int k = 0; k < ranks(); ++k) all.push_back(k);
    parts.flat = part(all, rank, 3);
    return parts;
  }
  std::unique_ptr<Engine> engine(int rank) { return make_hierarchical_engine({.me = {rank, ranks()}}, parts(rank)); }

  /// Each rank in a thread.
  void run(const std::function<void(Engine&)>& body) {
    in_threads(ranks(), [&](int rank) {
      const auto mine = engine(rank);
      body(*mine);
    });
  }

 private:
  std::unique_ptr<Engine> part(const std::vector<int>& members, int rank, int level) {
    if (members.size() == 1) return nullptr;
    const std::lock_guard lock(mutex_);
    auto& group = groups_[{level, members}];
    if (!group) group = std::make_shared<ThreadGroup>(static_cast<int>(members.size()), timeout_, members);
    return group->engine(static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin()));
  }

  const std::vector<int> host_of_;
  const Topology topology_;
  const Clock::duration timeout_;
  Mutex mutex_;
  std::map<std::pair<int, std::vector<int>>, std::shared_ptr<ThreadGroup>> groups_ TRIREME_GUARDED_BY(mutex_);
};

class Hierarchical : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(Hierarchical, EveryOperationTypeAndReduction) {
  Hosts hosts(GetParam());
  hosts.run([](Engine& engine) {
    for (const size_t elements : {0u, 1u, 257u})
      for (const testing::Step& step : testing::all_steps(engine.me().size, elements)) Player(engine, step).play();
  });
}

TEST_P(Hierarchical, RandomOperationsShortAndLong) {
  Hosts hosts(GetParam());
  hosts.run([](Engine& engine) {
    const size_t count = kSanitized ? 60 : 400;
    for (const testing::Step& step : testing::random_steps(count, engine.me().size, 40000)) Player(engine, step).play();
  });
}

// 40000 in half: the sum of two is too large for the type, the average is not.
TEST_P(Hierarchical, AverageOfLargeHalves) {
  Hosts hosts(GetParam());
  hosts.run([](Engine& engine) {
    std::vector<uint16_t> data(100, shm::narrow_f16(40000.0f));
    engine.all_reduce(data.data(), data.size(), DType::f16, ReduceOp::avg);
    EXPECT_EQ(data, std::vector<uint16_t>(100, shm::narrow_f16(40000.0f)));
  });
}

// An average of the hosts' averages would be something else where hosts differ.
TEST_P(Hierarchical, AverageIsOverRanksNotOverHosts) {
  Hosts hosts(GetParam());
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    hosts.run([dtype](Engine& engine) {
      const int me = engine.me().rank;
      const int size = engine.me().size;
      Bytes data(size_of(dtype));
      const float value = static_cast<float>(me * 12);
      if (dtype == DType::f32) std::memcpy(data.data(), &value, 4);
      const double wide = value;
      if (dtype == DType::f64) std::memcpy(data.data(), &wide, 8);
      const uint16_t narrow = dtype == DType::f16 ? shm::narrow_f16(value) : shm::narrow_bf16(value);
      if (data.size() == 2) std::memcpy(data.data(), &narrow, 2);
      engine.all_reduce(data.data(), 1, dtype, ReduceOp::avg);
      EXPECT_EQ(testing::value_at(dtype, data, 0), 6.0 * (size - 1)) << to_string(dtype);
    });
}

INSTANTIATE_TEST_SUITE_P(Spread, Hierarchical,
                         ::testing::Values(std::vector{0, 0, 1, 1}, std::vector{0, 0, 0, 1}, std::vector{0, 1, 0, 1},
                                           std::vector{0, 1}, std::vector{0, 1, 2, 3}, std::vector{0, 1, 1, 0, 2},
                                           std::vector{0, 0, 0}));

// The real thing inside the hosts, and, since only one machine is here, between them.
TEST(HierarchicalOverShm, EveryOperation) {
  for (const std::vector<int>& host_of : {std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1}, std::vector{0, 0, 0, 1}}) {
    const Topology topology(host_of);
    const auto store = std::make_shared<store::MemoryStore>();
    const auto part = [&](const std::string& name, const std::vector<int>& members, int rank) {
      const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
      const RankInfo me{static_cast<int>(place), static_cast<int>(members.size())};
      return shm::Group::join(
          store, {.name = name, .member = {.me = me, .names = members}, .piece_bytes = 4096, .timeout = 50s},
          Deadline::in(50s));
    };
    in_threads(topology.ranks(), [&](int rank) {
      const int host = topology.host_of(rank);
      const int place = topology.place_of(rank);
      Hierarchy parts{.host_of = host_of};
      parts.inner = part(fmt::format("inner{}", host), topology.members(host), rank);
      parts.across = part(fmt::format("across{}", place), topology.column(place), rank);
      parts.flat = part("flat", {0, 1, 2, 3}, rank);
      const auto engine = make_hierarchical_engine({.me = {rank, topology.ranks()}}, std::move(parts));
      for (const testing::Step& step : testing::all_steps(topology.ranks(), 257)) Player(*engine, step).play();
      for (const testing::Step& step : testing::random_steps(kSanitized ? 30 : 100, topology.ranks(), 40000))
        Player(*engine, step).play();
    });
  }
}

std::vector<std::string> messages(Hosts& hosts, const std::function<void(Engine&)>& body) {
  std::vector<std::string> texts(static_cast<size_t>(hosts.ranks()));
  hosts.run([&](Engine& engine) {
    try {
      body(engine);
    } catch (const PeerError& error) {
      texts[static_cast<size_t>(engine.me().rank)] = error.what();
    }
  });
  return texts;
}

// Rank 3 leaves its host's reduction; all the others must hear of it, and in the numbers of the whole group.
TEST(HierarchicalFailure, IsHeardOnEveryHost) {
  Hosts hosts({0, 0, 1, 1});
  const auto texts = messages(hosts, [](Engine& engine) {
    int data = 1;
    if (engine.me().rank == 3) return engine.abort("out of memory");
    engine.all_reduce(&data, 1, DType::i32, ReduceOp::sum);
  });
  EXPECT_THAT(texts[2], AllOf(HasSubstr("rank 2: all_reduce #1 int32[1] sum"), HasSubstr("on host 1 (ranks 2, 3): "),
                              HasSubstr("rank 3 aborted the group: out of memory")));
  EXPECT_THAT(texts[0], AllOf(HasSubstr("all_reduce"), HasSubstr("out of memory")));
  EXPECT_THAT(texts[1], AllOf(HasSubstr("all_reduce"), HasSubstr("out of memory")));
}

TEST(HierarchicalFailure, ATimeoutInsideOneHostEndsTheOthers) {
  Hosts hosts({0, 1, 1, 0}, 300ms);
  const auto texts = messages(hosts, [](Engine& engine) {
    if (engine.me().rank != 2) engine.barrier();
  });
  EXPECT_THAT(texts[1], AllOf(HasSubstr("barrier #1"), HasSubstr("on host 1 (ranks 1, 2): "),
                              HasSubstr("rank 1 waited in vain")));
  EXPECT_THAT(texts[0], HasSubstr("rank 0: barrier"));
  EXPECT_THAT(texts[3], HasSubstr("rank 3: barrier"));
}

TEST(HierarchicalFailure, BlamesInTheNumbersOfTheWholeGroup) {
  Hosts hosts({0, 0, 1, 1});
  hosts.run([](Engine& engine) {
    try {
      if (engine.me().rank == 3) engine.abort("out of memory");
      engine.barrier();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 3) << error.what();
    }
  });
}

TEST(HierarchicalFailure, EveryFurtherCallThrows) {
  Hosts hosts({0, 0, 1, 1});
  hosts.run([](Engine& engine) {
    engine.barrier();
    engine.abort("the end");
    int data = 1;
    for (int i = 0; i < 2; ++i) {
      const auto text = message_of<PeerError>([&] { engine.all_reduce(&data, 1, DType::i32, ReduceOp::sum); });
      EXPECT_THAT(text, HasSubstr("the end"));
    }
    EXPECT_THROW(engine.send(&data, 1, DType::i32, (engine.me().rank + 1) % 4), PeerError);
  });
}

// What some ranks do differently from the rest.
struct Mismatch {
  const char* first;
  const char* other;
  std::function<void(Engine&, bool other)> call;
};

std::vector<Mismatch> mismatches() {
  static float data[4];
  static float room[4];
  const auto reduce = [](size_t n, ReduceOp op) {
    return [n, op](Engine& e) { e.all_reduce(std::vector<float>(n).data(), n, DType::f32, op); };
  };
  const auto differ = [](auto one, auto two) { return [=](Engine& e, bool other) { other ? two(e) : one(e); }; };
  const auto sum = reduce(3, ReduceOp::sum);
  const auto shaped = [](std::vector<int64_t> sizes) {
    return
        [sizes](Engine& e) { e.all_reduce(std::vector<float>(60'000).data(), Dims(sizes), DType::f32, ReduceOp::sum); };
  };
  const auto spread = [](int root) {
    return [root](Engine& e) { e.broadcast(std::vector<float>(3).data(), 3, DType::f32, root); };
  };
  const auto gather = [](int root) {
    return [root](Engine& e) {
      const std::vector<size_t> counts(static_cast<size_t>(e.size()), 1);
      e.gather(data, counts, DType::f32, room, root);
    };
  };
  const auto all_gather = [](Engine& e) {
    const std::vector<size_t> counts(static_cast<size_t>(e.size()), 1);
    float parts[4] = {};
    float mine = 1;
    e.all_gather(&mine, counts, DType::f32, parts);
  };
  return {{"all_reduce #1 float[3] sum", "all_reduce #1 float[3] max", differ(sum, reduce(3, ReduceOp::max))},
          {"all_reduce #1 float[3] sum", "all_reduce #1 float[3] avg", differ(sum, reduce(3, ReduceOp::avg))},
          {"all_reduce #1 float[3] sum", "all_reduce #1 float[4] sum", differ(sum, reduce(4, ReduceOp::sum))},
          {"all_reduce #1 float[3] sum", "float[70000] sum", differ(sum, reduce(70'000, ReduceOp::sum))},
          {"all_reduce #1 float[3] sum", "all_gather #1 float[", differ(sum, all_gather)},
          {"all_reduce #1 float[3] sum", "gather #1 float[", differ(sum, gather(0))},
          {"to rank 0", "to rank 1", differ(gather(0), gather(1))},
          {"all_reduce #1 float[70000] sum", "all_reduce #1 float[70000] avg",
           differ(reduce(70'000, ReduceOp::sum), reduce(70'000, ReduceOp::avg))},
          {"float[30000, 2] sum", "float[2, 30000] sum", differ(shaped({30'000, 2}), shaped({2, 30'000}))},
          {"broadcast #1 float[3] from rank 0", "broadcast #1 float[3] from rank 1", differ(spread(0), spread(1))},
          {"all_reduce #1 float[3] sum", "barrier #1", differ(sum, [](Engine& e) { e.barrier(); })}};
}

// Every rank gets the same text with both calls, and nothing has moved.
void expect_all_told(const std::vector<int>& host_of, const Mismatch& mismatch,
                     const std::function<bool(int)>& differs) {
  Hosts hosts(host_of);
  hosts.run([&](Engine& engine) {
    engine.compare_calls();
    const std::string text = message_of<Disagreement>([&] { mismatch.call(engine, differs(engine.rank())); });
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0: "), HasSubstr(mismatch.first), HasSubstr(mismatch.other)))
        << "rank " << engine.rank() << " of " << host_of.size();
    EXPECT_THROW(engine.barrier(), PeerError);
  });
}

TEST(HierarchicalComparison, HostsThatDisagreeAreNamedWithTheirCalls) {
  for (const std::vector<int>& host_of : {std::vector{0, 0, 1, 1}, std::vector{0, 0, 1}, std::vector{0, 1}})
    for (const Mismatch& mismatch : mismatches())
      expect_all_told(host_of, mismatch, [&](int rank) { return host_of[static_cast<size_t>(rank)] == 1; });
}

// A difference inside a host can give each column calls that agree: sums in one, averages in the other.
TEST(HierarchicalComparison, RanksOfOneHostThatDisagreeAreNamedWithTheirCalls) {
  for (const Mismatch& mismatch : mismatches()) {
    expect_all_told({0, 0, 1, 1}, mismatch, [](int rank) { return rank % 2 == 1; });
    expect_all_told({0, 0, 1, 1}, mismatch, [](int rank) { return rank == 1; });
    expect_all_told({0, 0, 1}, mismatch, [](int rank) { return rank == 1; });
  }
}

TEST(HierarchicalComparison, AgreeingCallsAreNotDisturbed) {
  for (const std::vector<int>& host_of : {std::vector{0, 0, 1, 1}, std::vector{0, 0, 0, 1}, std::vector{0, 1, 2}}) {
    Hosts hosts(host_of);
    hosts.run([](Engine& engine) {
      engine.compare_calls();
      for (const testing::Step& step : testing::all_steps(engine.me().size, 257)) Player(engine, step).play();
      for (const testing::Step& step : testing::random_steps(kSanitized ? 30 : 100, engine.me().size, 40000))
        Player(engine, step).play();
    });
  }
}

TEST(HierarchicalFailure, ImpossibleArgumentsHarmNothing) {
  Hosts hosts({0, 0, 1});
  hosts.run([](Engine& engine) {
    int data = 1;
    const size_t two[] = {1, 1};
    EXPECT_THROW(engine.broadcast(&data, 1, DType::i32, 3), UsageError);
    EXPECT_THROW(engine.reduce(&data, 1, DType::i32, ReduceOp::sum, -1), UsageError);
    EXPECT_THROW(engine.all_reduce(&data, 1, DType::i32, ReduceOp::avg), UsageError);
    EXPECT_THROW(engine.all_gather(&data, two, DType::i32, &data), UsageError);
    EXPECT_THROW(engine.gather(&data, two, DType::i32, &data, 0), UsageError);
    EXPECT_THROW(engine.send(&data, 1, DType::i32, engine.me().rank), UsageError);
    engine.all_reduce(&data, 1, DType::i32, ReduceOp::sum);
    EXPECT_EQ(data, 3);
  });
}

TEST(HierarchicalFailure, PartsThatDoNotFitAreNamed) {
  Hosts hosts({0, 0, 1, 1});
  Hierarchy swapped = hosts.parts(1);
  EXPECT_THAT(message_of<UsageError>([&] {
                make_hierarchical_engine({.me = {0, 4}}, std::move(swapped));
              }),
              AllOf(HasSubstr("inner"), HasSubstr("rank 1 of 2"), HasSubstr("rank 0 of 2")));
  Hierarchy lacking = hosts.parts(0);
  lacking.across.reset();
  EXPECT_THAT(message_of<UsageError>([&] {
                make_hierarchical_engine({.me = {0, 4}}, std::move(lacking));
              }),
              AllOf(HasSubstr("no across engine"), HasSubstr("ranks 0, 2")));
  EXPECT_THROW(make_hierarchical_engine({.me = {0, 3}}, hosts.parts(0)), UsageError);
}

}  // namespace
}  // namespace trireme::comm
