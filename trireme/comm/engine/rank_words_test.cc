#include "trireme/comm/engine/rank_words.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

const std::vector<int> kMembers = {4, 5, 16};

TEST(RankWords, NumbersOfRanksAreTranslated) {
  EXPECT_EQ(in_group_numbers("rank 0: all_reduce #1: rank 2 (process 1) died", kMembers),
            "rank 4: all_reduce #1: rank 16 (process 1) died");
  EXPECT_EQ(in_group_numbers("ranks 0 and 1 cannot share memory", kMembers), "ranks 4 and 5 cannot share memory");
  EXPECT_EQ(in_group_numbers("ranks 0, 1 and 2, 2 hosts", kMembers), "ranks 4, 5 and 16, 16 hosts")
      << "a list goes on as long as it looks like one";
}

TEST(RankWords, OtherNumbersStay) {
  for (const char* text : {"", "rank", "rank ", "rank 3", "frank 1", "#1 after 2 ms", "rank 99999999999999999999"})
    EXPECT_EQ(in_group_numbers(text, kMembers), text);
}

TEST(RankWords, WhatSpeaksOfTheWholeGroupStays) {
  EXPECT_EQ(in_group_numbers("rank 1 aborted: [whole group] rank 1 died", kMembers), "rank 5 aborted: rank 1 died");
}

TEST(RankWords, Names) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({2, 3}), "ranks 2, 3");
}

}  // namespace
}  // namespace trireme
