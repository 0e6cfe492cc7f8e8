#include "trireme/comm/engine/local.h"

#include <gtest/gtest.h>

#include "trireme/comm/engine/test_engine_ops.h"

namespace trireme::comm {
namespace {

using testing::Player;

TEST(LocalEngine, EveryOperationIsACopy) {
  const auto engine = make_local_engine();
  EXPECT_STREQ(engine->name(), "local");
  EXPECT_EQ(engine->me(), (RankInfo{0, 1}));
  for (const size_t elements : {0u, 1u, 1000u})
    for (const testing::Step& step : testing::all_steps(1, elements)) Player(*engine, step).play();
}

TEST(LocalEngine, WrongArgumentsAreNamed) {
  const auto engine = make_local_engine();
  int data = 1;
  const size_t one[] = {1};
  const size_t two[] = {1, 1};
  EXPECT_THROW(engine->broadcast(&data, 1, DType::i32, 1), UsageError);
  EXPECT_THROW(engine->reduce(&data, 1, DType::i32, ReduceOp::sum, -1), UsageError);
  EXPECT_THROW(engine->all_reduce(&data, 1, DType::i32, ReduceOp::avg), UsageError);
  EXPECT_THROW(engine->all_gather(&data, two, DType::i32, &data), UsageError);
  EXPECT_THROW(engine->all_to_all(&data, one, DType::i32, &data, two), UsageError);
  EXPECT_THROW(engine->send(&data, 1, DType::i32, 0), UsageError);
  EXPECT_THROW(engine->recv(&data, 1, DType::i32, 1), UsageError);
  EXPECT_NO_THROW(engine->barrier());
}

TEST(EngineDeathTest, AForkedProcessMayNotUseTheGroup) {
  const auto engine = make_local_engine();
  // A death test runs its statement in a fork of this process.
  EXPECT_EXIT(
      {
        const auto message = message_of<UsageError>([&] { engine->barrier(); });
        ::_exit(message.find("forked from process") != std::string::npos ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
  EXPECT_NO_THROW(engine->barrier());
}

TEST(LocalEngine, AbortEndsIt) {
  const auto engine = make_local_engine();
  engine->abort("enough");
  const auto message = message_of<PeerError>([&] { engine->barrier(); });
  EXPECT_NE(message.find("enough"), std::string::npos) << message;
  int data = 1;
  EXPECT_THROW(engine->all_reduce(&data, 1, DType::i32, ReduceOp::sum), PeerError);
}

}  // namespace
}  // namespace trireme::comm
