// The ranks of a group as threads of one process. Included by tests only.
//
//   run_ranks(2, [](const Group& group) { all_reduce(tensor, ReduceOp::sum, group); });
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "trireme/comm/group_state.h"
#include "trireme/store/memory_store.h"

namespace trireme::parallel::testing {

/// An exception of a rank fails the test. A rank that waits for one that never comes gives up after ten seconds.
template <typename Rank>
void run_ranks(int ranks, const Rank& run) {
  const auto store = std::make_shared<store::MemoryStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      EXPECT_NO_THROW(run(make_world_group(comm::Context::meet(
          {.world = {rank, ranks}, .store = store, .address = "127.0.0.1", .timeout = std::chrono::seconds(10)}))))
          << "rank " << rank;
    });
  for (std::thread& thread : threads) thread.join();
  forget_world_group();
}

}  // namespace trireme::parallel::testing
