#include "trireme/comm/engine/shm/free_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace trireme::comm::shm {
namespace {

TEST(FreeRanges, NothingIsFreeAtFirst) {
  FreeRanges free;
  EXPECT_EQ(free.take(1), std::nullopt);
  EXPECT_EQ(free.total(), 0u);
  EXPECT_EQ(free.largest(), 0u);
}

TEST(FreeRanges, TheSmallestThatIsLargeEnough) {
  FreeRanges free;
  free.insert(0, 100);
  free.insert(200, 10);
  free.insert(300, 20);
  EXPECT_EQ(free.largest(), 100u);
  EXPECT_EQ(free.take(15), 300u);
  EXPECT_EQ(free.take(10), 200u);
  EXPECT_EQ(free.take(5), 315u);
  EXPECT_EQ(free.take(101), std::nullopt);
  EXPECT_EQ(free.take(100), 0u);
  EXPECT_EQ(free.total(), 0u);
}

TEST(FreeRanges, NeighboursAreOne) {
  FreeRanges free;
  free.insert(10, 10);
  free.insert(30, 10);
  EXPECT_EQ(free.count(), 2u);
  free.insert(20, 10);  // between both
  EXPECT_EQ(free.count(), 1u);
  EXPECT_EQ(free.take(30), 10u);
}

TEST(FreeRanges, WhatIsTakenNeverOverlapsAndComesBackWhole) {
  constexpr size_t kSize = 1000;
  std::mt19937 random(1);
  FreeRanges free;
  free.insert(0, kSize);
  std::vector<bool> taken(kSize);
  std::vector<std::pair<size_t, size_t>> held;
  for (int step = 0; step < 5000; ++step) {
    const size_t size = 1 + random() % 90;
    if (const auto place = random() % 2 == 0 ? free.take(size) : std::nullopt) {
      for (size_t i = *place; i < *place + size; ++i) {
        ASSERT_FALSE(taken.at(i));
        taken[i] = true;
      }
      held.emplace_back(*place, size);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      for (size_t i = 0; i < held.back().second; ++i) taken[held.back().first + i] = false;
      free.insert(held.back().first, held.back().second);
      held.pop_back();
    }
  }
  for (const auto& [place, size] : held) free.insert(place, size);
  EXPECT_EQ(free.count(), 1u);
  EXPECT_EQ(free.take(kSize), 0u);
}

}  // namespace
}  // namespace trireme::comm::shm
