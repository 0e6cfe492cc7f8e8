// One rank of the MPI tests: started several times by mpirun (see CMakeLists.txt). Every rank runs the same tests in
// the same order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iostream>

#include "trireme/comm/engine/mpi.h"
#include "trireme/comm/engine/test_engine_ops.h"
#include "trireme/core/file.h"
#include "trireme/core/parallel_env.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::Player;

// As mpirun tells it.
RankInfo mpi_world() {
  return ParallelEnv::from_environment();
}

std::unique_ptr<Engine> make_world(size_t max_elements = MpiOptions().max_elements) {
  return make_mpi_engine({.timeout = 60s, .max_elements = max_elements});
}

TEST(Mpi, ThePluginIsThereAndTheWorldIsMpiruns) {
  EXPECT_EQ(why_no_mpi(), std::nullopt);
  const auto engine = make_world();
  EXPECT_STREQ(engine->name(), "mpi");
  EXPECT_EQ(engine->me(), mpi_world());
}

TEST(Mpi, EveryOperationTypeAndReduction) {
  const auto engine = make_world();
  for (const size_t elements : {0u, 1u, 1000u})
    for (const testing::Step& step : testing::all_steps(engine->me().size, elements)) Player(*engine, step).play();
}

TEST(Mpi, RandomOperationsShortAndLong) {
  const auto engine = make_world();
  for (const testing::Step& step : testing::random_steps(400, engine->me().size, 40000)) Player(*engine, step).play();
}

// As with more than 2^31 elements, only smaller.
TEST(Mpi, LongerThanOneCallTakes) {
  const auto engine = make_world(100);
  for (const testing::Step& step : testing::all_steps(engine->me().size, 333)) Player(*engine, step).play();
}

TEST(Mpi, AverageOfLargeHalves) {
  const auto engine = make_world();
  std::vector<uint16_t> data(100, shm::narrow_f16(40000.0f));
  const auto before = data;
  engine->all_reduce(data.data(), data.size(), DType::f16, ReduceOp::avg);
  EXPECT_EQ(data, before);
}

TEST(Mpi, NanWinsMinimumAndMaximum) {
  const auto engine = make_world();
  for (int culprit = 0; culprit < engine->me().size; ++culprit)
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      float value = engine->me().rank == culprit ? NAN : 1.0f;
      engine->all_reduce(&value, 1, DType::f32, op);
      EXPECT_TRUE(std::isnan(value));
    }
}

// Halves, odd and even, and in another order; at the same time, since neither knows of the other.
TEST(Mpi, Groups) {
  const RankInfo world = mpi_world();
  const auto play = [](const std::vector<int>& ranks) {
    const auto engine = make_mpi_engine({.world_ranks = ranks, .timeout = 60s});
    EXPECT_EQ(engine->me().size, static_cast<int>(ranks.size()));
    EXPECT_EQ(ranks[static_cast<size_t>(engine->me().rank)], mpi_world().rank);
    for (const testing::Step& step : testing::random_steps(100, engine->me().size)) Player(*engine, step).play();
  };
  std::vector<int> half, parity, backwards;
  for (int rank = 0; rank < world.size; ++rank) {
    if ((rank * 2 < world.size) == (world.rank * 2 < world.size)) half.push_back(rank);
    if (rank % 2 == world.rank % 2) parity.push_back(rank);
    backwards.push_back(world.size - 1 - rank);
  }
  play(half);
  play(parity);
  play(backwards);
}

// Messages beside a collective, from two threads.
TEST(Mpi, MessagesBesideACollective) {
  const auto engine = make_world();
  const testing::Step ring{testing::Kind::ring, DType::f32, ReduceOp::sum, 0, 20000, 7};
  const testing::Step sums{testing::Kind::all_reduce, DType::f32, ReduceOp::sum, 0, 20000, 8};
  shm::testing::in_threads(2, [&](int thread) {
    for (int i = 0; i < 20; ++i) Player(*engine, thread == 0 ? ring : sums).play();
  });
}

TEST(Mpi, ImpossibleArgumentsHarmNothing) {
  const auto engine = make_world();
  const RankInfo me = engine->me();
  int data = 1;
  const std::vector<size_t> counts(static_cast<size_t>(me.size) + 1, 1);
  EXPECT_THROW(engine->broadcast(&data, 1, DType::i32, me.size), UsageError);
  EXPECT_THROW(engine->all_reduce(&data, 1, DType::i32, ReduceOp::avg), UsageError);
  EXPECT_THROW(engine->all_gather(&data, counts, DType::i32, &data), UsageError);
  EXPECT_THROW(engine->send(&data, 1, DType::i32, me.rank), UsageError);
  EXPECT_THROW(make_mpi_engine({.world_ranks = {me.rank, me.rank}}), UsageError);
  EXPECT_THROW(make_mpi_engine({.world_ranks = {me.rank, 99}}), UsageError);
  EXPECT_THROW(make_mpi_engine({.world_ranks = {(me.rank + 1) % me.size, -1}}), UsageError);
  engine->all_reduce(&data, 1, DType::i32, ReduceOp::sum);
  EXPECT_EQ(data, me.size);
}

// The failures: two ranks, of which one tells; then the program ends and MPI with it. Whoever ends first ends the other
// too, so the silent one waits until the other has told: by a file, since MPI is of no more use.

std::filesystem::path told_file() {
  return std::filesystem::temp_directory_path() / fmt::format("trireme-mpi-test-{}", ::getppid());  // mpirun's number
}

void tell(const std::string& message) {
  if (::testing::Test::HasFailure()) return;
  std::cout << "as expected: " << message << std::endl;
  write_file_atomically(told_file(), "told");
  EXPECT_TRUE(eventually([] { return !std::filesystem::exists(told_file()); })) << "the other removes it";
}

void wait_until_told() {
  EXPECT_TRUE(eventually([] { return std::filesystem::exists(told_file()); }));
  std::filesystem::remove(told_file());
}

void wait_for_the_end(Engine& engine) {
  int data = 0;
  EXPECT_THROW(engine.recv(&data, 1, DType::i32, 1 - engine.me().rank), Error);
  wait_until_told();
}

TEST(MpiFailure, Late) {
  const bool late = mpi_world().rank == 1;
  const auto engine = make_mpi_engine({.timeout = late ? Clock::duration(60s) : Clock::duration(300ms)});
  if (late) return wait_for_the_end(*engine);
  int data = 1;
  const auto message = message_of<PeerError>([&] { engine->all_reduce(&data, 1, DType::i32, ReduceOp::sum); });
  EXPECT_THAT(message, HasSubstr("rank 0: all_reduce #1 int32[1] sum, after "));
  EXPECT_THROW(engine->barrier(), PeerError);
  EXPECT_THROW(make_mpi_engine({.world_ranks = {0}}), PeerError);
  tell(message);
}

TEST(MpiFailure, Abort) {
  const auto engine = make_world();
  engine->barrier();
  if (engine->me().rank == 1) {
    engine->abort("enough");
    EXPECT_THROW(engine->barrier(), PeerError);
    return wait_until_told();
  }
  const auto message = message_of<PeerError>([&] { engine->barrier(); });
  tell(message);
}

TEST(MpiFailure, Disagreement) {
  const auto engine = make_world();
  const double data[4] = {};
  double room[4] = {};
  if (engine->me().rank == 0) {
    engine->send(data, 3, DType::f32, 1);
    return wait_for_the_end(*engine);
  }
  const auto message = message_of<UsageError>([&] { engine->recv(room, 4, DType::f64, 0); });
  tell(message);
}

}  // namespace
}  // namespace trireme::comm
