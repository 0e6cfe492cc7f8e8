#include "trireme/comm/engine/checked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "trireme/comm/engine/test_engine_ops.h"
#include "trireme/comm/engine/test_thread_engine.h"

namespace trireme {
namespace {

using shm::testing::in_threads;
using shm::testing::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Player;
using testing::ThreadGroup;

constexpr int kRanks = 3;
using Body = std::function<void(Engine&)>;

void with_checked_engines(const Body& body) {
  const auto group = std::make_shared<ThreadGroup>(kRanks);
  in_threads(kRanks, [&](int rank) { body(*make_checked_engine(group->engine(rank))); });
}

// What each rank is told when all call `body`.
std::vector<std::string> refusals(const Body& body) {
  std::vector<std::string> texts(kRanks);
  with_checked_engines([&](Engine& engine) {
    texts[static_cast<size_t>(engine.me().rank)] = message_of<UsageError>([&] { body(engine); });
  });
  return texts;
}

TEST(CheckedEngine, IsTheEngineBelowWhileAllAgree) {
  with_checked_engines([](Engine& engine) {
    EXPECT_STREQ(engine.name(), "thread");
    EXPECT_EQ(engine.me().size, kRanks);
    for (const testing::Step& step : testing::random_steps(300, kRanks)) Player(engine, step).play();
  });
}

TEST(CheckedEngine, AnotherOperationIsToldToAllBeforeAnyElementIsUsed) {
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

TEST(CheckedEngine, EveryArgumentCounts) {
  float data[8] = {};
  const size_t even[] = {1, 1, 1}, uneven[] = {2, 1, 0};
  const auto odd = [](Engine& engine) { return engine.me().rank == 2; };
  const std::vector<Body> wrong = {
      [&](Engine& e) { e.all_reduce(data, odd(e) ? 2 : 1, DType::f32, ReduceOp::sum); },
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

TEST(CheckedEngine, WhatIsSentMustBeWhatIsExpected) {
  const auto texts = refusals([](Engine& engine) {
    float data[8] = {};
    const size_t ones[] = {1, 1, 1}, greedy[] = {1, 4, 1};
    engine.all_to_all(data, ones, DType::f32, data, engine.me().rank == 0 ? greedy : ones);
  });
  EXPECT_THAT(texts, Each(HasSubstr("rank 1 sends 1 elements to rank 0, which expects 4")));
}

TEST(CheckedEngine, AfterARefusalTheGroupIsAborted) {
  with_checked_engines([](Engine& engine) {
    float data[2] = {};
    const size_t elements = engine.me().rank == 0 ? 1 : 2;
    EXPECT_THROW(engine.all_reduce(data, elements, DType::f32, ReduceOp::sum), UsageError);
    EXPECT_THAT(message_of<PeerError>([&] { engine.barrier(); }), HasSubstr("aborted the group"));
  });
}

}  // namespace
}  // namespace trireme
