#include "trireme/comm/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "trireme/comm/engine/test_engine_ops.h"
#include "trireme/comm/engine/test_thread_engine.h"

namespace trireme::comm {
namespace {

using shm::testing::in_threads;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Player;
using testing::ThreadGroup;

constexpr int kRanks = 3;
constexpr int64_t kWide[] = {2, 3}, kTall[] = {3, 2};
using Body = std::function<void(Engine&)>;

void with_comparing_engines(const Body& body) {
  const auto group = std::make_shared<ThreadGroup>(kRanks);
  in_threads(kRanks, [&](int rank) {
    const auto engine = group->engine(rank);
    engine->compare_calls();
    body(*engine);
  });
}

// The error of each rank when all call `body`.
std::vector<std::string> refusals(const Body& body) {
  std::vector<std::string> texts(kRanks);
  with_comparing_engines([&](Engine& engine) {
    texts[static_cast<size_t>(engine.me().rank)] = message_of<UsageError>([&] { body(engine); });
  });
  return texts;
}

TEST(ComparedCalls, ChangeNothingWhileAllAgree) {
  with_comparing_engines([](Engine& engine) {
    EXPECT_STREQ(engine.name(), "thread");
    EXPECT_EQ(engine.me().size, kRanks);
    for (const testing::Step& step : testing::random_steps(300, kRanks)) Player(engine, step).play();
  });
}

TEST(ComparedCalls, AnotherOperationIsToldToAllBeforeAnyElementIsUsed) {
  std::vector<float> after(kRanks);
  const auto texts = refusals([&](Engine& engine) {
    float& value = after[static_cast<size_t>(engine.me().rank)] = 5;
    engine.barrier();
    if (engine.me().rank == 1) return engine.broadcast(&value, 1, DType::f32, 0);
    engine.all_reduce(&value, 1, DType::f32, ReduceOp::sum);
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("rank 0: all_reduce #2 float[1]"), HasSubstr("rank 1: broadcast #2"))));
  EXPECT_THAT(after, Each(5));
}

TEST(ComparedCalls, EveryArgumentCounts) {
  float data[8] = {};
  const size_t even[] = {1, 1, 1}, uneven[] = {2, 1, 0};
  const auto odd = [](Engine& engine) { return engine.me().rank == 2; };
  const std::vector<Body> wrong = {
      [&](Engine& e) { e.all_reduce(data, odd(e) ? 2 : 1, DType::f32, ReduceOp::sum); },
      [&](Engine& e) { e.all_reduce(data, Dims(odd(e) ? kTall : kWide), DType::f32, ReduceOp::sum); },
      [&](Engine& e) { e.reduce(data, Dims(odd(e) ? kTall : kWide), DType::f32, ReduceOp::sum, 0); },
      [&](Engine& e) { e.broadcast(data, Dims(odd(e) ? kTall : kWide), DType::f32, 0); },
      [&](Engine& e) { e.all_reduce(data, 1, odd(e) ? DType::i32 : DType::f32, ReduceOp::sum); },
      [&](Engine& e) { e.all_reduce(data, 1, DType::f32, odd(e) ? ReduceOp::max : ReduceOp::sum); },
      [&](Engine& e) { e.reduce(data, 1, DType::f32, ReduceOp::sum, odd(e) ? 1 : 0); },
      [&](Engine& e) { e.broadcast(data, 1, DType::f32, odd(e) ? 1 : 0); },
      [&](Engine& e) { e.all_gather(data, odd(e) ? uneven : even, DType::f32, data); },
      [&](Engine& e) { e.gather(data, odd(e) ? uneven : even, DType::f32, data, 0); },
      [&](Engine& e) { e.scatter(data, odd(e) ? uneven : even, DType::f32, data, 0); },
      [&](Engine& e) { e.reduce_scatter(data, odd(e) ? uneven : even, DType::f32, ReduceOp::sum, data); },
  };
  for (const Body& body : wrong) EXPECT_THAT(refusals(body), Each(AllOf(HasSubstr("rank 0: "), HasSubstr("rank 2: "))));
}

TEST(ComparedCalls, WhatIsSentMustBeWhatIsExpected) {
  const auto texts = refusals([](Engine& engine) {
    float data[8] = {};
    const size_t ones[] = {1, 1, 1}, greedy[] = {1, 4, 1};
    engine.all_to_all(data, ones, DType::f32, data, engine.me().rank == 0 ? greedy : ones);
  });
  EXPECT_THAT(texts, Each(HasSubstr("rank 1 sends 1 elements to rank 0 but rank 0 expects 4")));
}

TEST(ComparedCalls, AfterARefusalTheGroupIsAborted) {
  with_comparing_engines([](Engine& engine) {
    float data[2] = {};
    const size_t elements = engine.me().rank == 0 ? 1 : 2;
    EXPECT_THROW(engine.all_reduce(data, elements, DType::f32, ReduceOp::sum), UsageError);
    EXPECT_THAT(message_of<PeerError>([&] { engine.barrier(); }), HasSubstr("float[1] sum but rank 1"));
  });
}

TEST(ComparedCalls, ShapesAreNamedOnBothSides) {
  const auto texts = refusals([](Engine& engine) {
    float data[6] = {};
    engine.all_reduce(data, Dims(engine.rank() == 2 ? kTall : kWide), DType::f32, ReduceOp::sum);
  });
  EXPECT_THAT(texts,
              Each(HasSubstr("rank 0: all_reduce #1 float[2, 3] sum but rank 2: all_reduce #1 float[3, 2] sum")));
}

// What every engine does alike, shown with one that is short.

TEST(EngineContract, ImpossibleArgumentsHarmNothing) {
  const auto group = std::make_shared<ThreadGroup>(2);
  in_threads(2, [&](int rank) {
    const auto engine = group->engine(rank);
    int data = 1;
    const size_t three[] = {1, 1, 1}, two[] = {1, 1};
    EXPECT_THROW(engine->all_reduce(&data, 1, DType::i32, ReduceOp::avg), UsageError);
    EXPECT_THROW(engine->reduce(&data, 1, DType::i32, ReduceOp::sum, 2), UsageError);
    EXPECT_THROW(engine->broadcast(&data, 1, DType::i32, -1), UsageError);
    EXPECT_THROW(engine->all_gather(&data, three, DType::i32, &data), UsageError);
    EXPECT_THROW(engine->gather(&data, two, DType::i32, &data, 2), UsageError);
    EXPECT_THROW(engine->scatter(&data, three, DType::i32, &data, 0), UsageError);
    EXPECT_THROW(engine->reduce_scatter(&data, three, DType::i32, ReduceOp::sum, &data), UsageError);
    EXPECT_THROW(engine->all_to_all(&data, two, DType::i32, &data, three), UsageError);
    EXPECT_THROW(engine->send(&data, 1, DType::i32, rank), UsageError);
    EXPECT_THROW(engine->recv(&data, 1, DType::i32, 2), UsageError);
    engine->all_reduce(&data, 1, DType::i32, ReduceOp::sum);
    EXPECT_EQ(data, 2);
    EXPECT_EQ(engine->sequence(), 1u);
  });
}

TEST(EngineContract, ASecondThreadIsAnError) {
  const auto group = std::make_shared<ThreadGroup>(2);
  const auto engine = group->engine(0), other = group->engine(1);
  std::thread first([&] { engine->barrier(); });
  EXPECT_TRUE(eventually([&] { return engine->sequence() == 1; }));
  EXPECT_THAT(message_of<UsageError>([&] { engine->barrier(); }), HasSubstr("two threads"));
  other->barrier();
  first.join();
}

TEST(EngineContract, AFailureNamesOperationAndBlamedRank) {
  const auto group = std::make_shared<ThreadGroup>(2);
  const auto engine = group->engine(0), other = group->engine(1);
  other->abort("enough");
  try {
    engine->barrier();
    FAIL() << "nothing was thrown";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.operation(), "barrier");
    EXPECT_EQ(error.sequence(), 1u);
    EXPECT_EQ(error.reason(), "rank 1 aborted the group: enough");
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0: barrier #1, after "), HasSubstr(error.reason())));
    EXPECT_EQ(message_of<PeerError>([&] { engine->barrier(); }), error.what()) << "every further call throws the same";
  }
}

TEST(Blame, SurvivesTheWay) {
  for (const Blame& blame : {Blame{2, "rank 2 died"}, Blame{{}, "12 of them"}, Blame{0, ""}})
    EXPECT_EQ(decode_blame(encode(blame)), blame);
  EXPECT_EQ(decode_blame("no number"), (Blame{{}, "no number"}));
}

// Rank 1 of 3, whose group is aborted: every operation fails.
class ReportedWaits : public ::testing::Test {
 protected:
  void SetUp() override {
    group_->engine(0)->abort("enough");
    engine_->report_waits([this](const char* operation, const std::vector<int>& ranks) {
      operation_ = operation;
      ranks_ = ranks;
    });
  }

  std::shared_ptr<ThreadGroup> group_ = std::make_shared<ThreadGroup>(3);
  std::unique_ptr<Engine> engine_ = group_->engine(1);
  std::string operation_;
  std::vector<int> ranks_;
  float x_ = 1;
};

TEST_F(ReportedWaits, ACollectiveNeedsAllOthers) {
  EXPECT_THROW(engine_->all_reduce(&x_, 1, DType::f32, ReduceOp::sum), PeerError);
  EXPECT_EQ(operation_, "all_reduce");
  EXPECT_EQ(ranks_, (std::vector<int>{0, 2}));
}

TEST_F(ReportedWaits, AMessageNeedsItsPeer) {
  EXPECT_THROW(engine_->recv(&x_, 1, DType::f32, 2), PeerError);
  EXPECT_EQ(operation_, "recv");
  EXPECT_EQ(ranks_, (std::vector<int>{2}));
}

TEST_F(ReportedWaits, ACallAfterAFailureIsReportedToo) {
  EXPECT_THROW(engine_->barrier(), PeerError);
  operation_.clear();
  EXPECT_THROW(engine_->send(&x_, 1, DType::f32, 0), PeerError);
  EXPECT_EQ(operation_, "send");
  EXPECT_EQ(ranks_, (std::vector<int>{0}));
}

TEST(ReportedWaitsAlone, NothingIsReportedWhileAllIsWell) {
  const auto engine = std::make_shared<ThreadGroup>(1)->engine(0);
  engine->report_waits([](const char* operation, const std::vector<int>&) { ADD_FAILURE() << operation; });
  float x = 1;
  engine->all_reduce(&x, 1, DType::f32, ReduceOp::sum);
  engine->barrier();
  EXPECT_EQ(x, 1);
}

}  // namespace
}  // namespace trireme::comm
