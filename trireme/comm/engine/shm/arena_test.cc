#include "trireme/comm/engine/shm/arena.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "trireme/comm/engine/shm/identity.h"
#include "trireme/comm/engine/shm/test_ranks.h"

namespace trireme::comm::shm {
namespace {

using testing::Bytes;
using testing::random_values;
using testing::reference;

constexpr size_t kMega = size_t{1} << 20;

size_t pages_of(const Arena& arena) {
  struct stat info {};
  EXPECT_EQ(::fstat(arena.fd(), &info), 0);
  return static_cast<size_t>(info.st_blocks) * 512;
}

TEST(Arena, BlocksAreApartAndCountedInPages) {
  Arena arena({.capacity = 4 * kMega, .keep = kMega});
  auto* a = static_cast<char*>(arena.allocate(5000));
  auto* b = static_cast<char*>(arena.allocate(1));
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  std::memset(a, 1, 5000);
  std::memset(b, 2, 1);
  EXPECT_EQ(a[4999], 1);
  EXPECT_EQ(arena.used(), 3 * 4096u);
  arena.release(a);
  arena.release(b);
  EXPECT_EQ(arena.used(), 0u);
}

TEST(Arena, AFullOneSaysSoByNull) {
  Arena arena({.capacity = kMega});
  EXPECT_EQ(arena.allocate(0), nullptr);
  EXPECT_EQ(arena.allocate(kMega + 1), nullptr);
  EXPECT_EQ(arena.allocate(SIZE_MAX), nullptr);
  void* all = arena.allocate(kMega);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.release(all);
  EXPECT_NE(arena.allocate(kMega), nullptr);
}

TEST(Arena, AFreeBlockIsUsedAgainWithItsPages) {
  Arena arena({.capacity = 64 * kMega, .keep = 8 * kMega});
  void* first = arena.allocate(2 * kMega);
  arena.release(first);
  EXPECT_EQ(arena.kept(), 2 * kMega);
  EXPECT_EQ(arena.allocate(2 * kMega), first);
  EXPECT_EQ(pages_of(arena), 2 * kMega);
}

TEST(Arena, WhatIsFreeBeyondTheLimitGoesBackToTheSystem) {
  Arena arena({.capacity = 64 * kMega, .keep = 2 * kMega});
  void* large = arena.allocate(16 * kMega);
  void* small = arena.allocate(kMega);
  EXPECT_EQ(pages_of(arena), 17 * kMega);
  arena.release(large);
  arena.release(small);
  EXPECT_EQ(pages_of(arena), kMega);
  EXPECT_EQ(arena.kept(), kMega);
  auto* again = static_cast<char*>(arena.allocate(16 * kMega));
  ASSERT_NE(again, nullptr);
  again[16 * kMega - 1] = 7;  // there is a page
}

/// Of 8 blocks of 1 MB every second one is free.
void fragment(Arena& arena) {
  std::vector<void*> blocks(8);
  for (void*& block : blocks) block = arena.allocate(kMega);
  for (size_t i = 0; i < blocks.size(); i += 2) arena.release(blocks[i]);
}

TEST(Arena, FreeBlocksThatAreTooSmallGiveTheirPagesToALargerOne) {
  Arena arena({.capacity = 64 * kMega, .keep = 8 * kMega});
  fragment(arena);
  ASSERT_EQ(arena.used(), 4 * kMega);
  ASSERT_EQ(arena.kept(), 4 * kMega);
  auto* larger = static_cast<char*>(arena.allocate(3 * kMega));
  ASSERT_NE(larger, nullptr);
  std::memset(larger, 1, 3 * kMega);
  EXPECT_EQ(arena.kept(), kMega) << "3 MB of the 11 are beyond the limit";
  EXPECT_EQ(pages_of(arena), 8 * kMega);
  EXPECT_NE(arena.allocate(8 * kMega), nullptr) << "blocks in use may exceed the limit";
  EXPECT_EQ(arena.kept(), 0u);
  EXPECT_EQ(pages_of(arena), 15 * kMega);
}

TEST(Arena, BelowTheLimitFreeBlocksKeepTheirPages) {
  Arena arena({.capacity = 64 * kMega, .keep = 16 * kMega});
  fragment(arena);
  ASSERT_NE(arena.allocate(3 * kMega), nullptr);
  EXPECT_EQ(arena.kept(), 4 * kMega);
}

TEST(Arena, KnowsWhereItsBytesLie) {
  Arena arena({.capacity = kMega});
  auto* block = static_cast<std::byte*>(arena.allocate(8192));
  const size_t place = arena.place_of(block, 8192).value();
  EXPECT_EQ(arena.place_of(block + 100, 10), place + 100);
  EXPECT_EQ(arena.place_of(block, 2 * kMega), std::nullopt);
  int elsewhere = 0;
  EXPECT_EQ(arena.place_of(&elsewhere, sizeof elsewhere), std::nullopt);
}

TEST(Arena, WithoutNeighboursKeepsAndDropsPagesToo) {
  Arena arena({.capacity = 64 * kMega, .keep = 2 * kMega, .shared = false});
  EXPECT_LT(arena.fd(), 0);
  auto* block = static_cast<unsigned char*>(arena.allocate(kMega));
  ASSERT_NE(block, nullptr);
  std::memset(block, 7, kMega);
  arena.release(block);
  EXPECT_EQ(arena.kept(), kMega);
  auto* again = static_cast<unsigned char*>(arena.allocate(kMega));
  EXPECT_EQ(again, block);
  EXPECT_EQ(again[kMega - 1], 7) << "its page was kept";
  auto* large = static_cast<unsigned char*>(arena.allocate(8 * kMega));
  ASSERT_NE(large, nullptr);
  std::memset(large, 7, 8 * kMega);
  arena.release(large);
  EXPECT_EQ(arena.kept(), 0u) << "more than it may keep";
  EXPECT_EQ(large[0], 0) << "its pages are gone";
  arena.release(again);
  EXPECT_EQ(arena.used(), 0u);
}

TEST(Arena, ThreadsMayShareIt) {
  Arena arena({.capacity = 64 * kMega, .keep = 4 * kMega});
  testing::in_threads(4, [&](int rank) {
    std::mt19937 random(static_cast<uint32_t>(rank));
    for (int i = 0; i < 200; ++i) {
      const size_t size = 1 + random() % 100000;
      auto* block = static_cast<unsigned char*>(arena.allocate(size));
      ASSERT_NE(block, nullptr);
      std::memset(block, rank, size);
      ASSERT_EQ(block[size - 1], rank);
      arena.release(block);
    }
  });
  EXPECT_EQ(arena.used(), 0u);
}

TEST(Arena, WhatAForkedChildWritesIsItsOwn) {
  Arena& arena = Arena::make_for_process({.capacity = 64 * kMega, .keep = kMega});
  EXPECT_EQ(&Arena::make_for_process({.capacity = 1}), &arena);
  auto* block = static_cast<char*>(arena.allocate(4096));
  std::strcpy(block, "parent");
  const pid_t child = ::fork();
  if (child == 0) {
    const bool read = std::strcmp(block, "parent") == 0;
    std::strcpy(block, "child");
    const bool closed = arena.allocate(4096) == nullptr && this_process().arena_bytes == 0;
    arena.release(block);
    ::_exit(read && closed && std::strcmp(block, "child") == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(block, "parent");
  arena.release(block);
}

TEST(ArenaView, ShowsWhatTheOwnerWrites) {
  Arena& arena = Arena::make_for_process({.capacity = 64 * kMega, .keep = kMega});
  auto* block = static_cast<char*>(arena.allocate(4096));
  std::strcpy(block, "hello");
  const ProcessIdentity me = this_process();
  const auto view = open_arena(me);
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(open_arena(me), view);
  EXPECT_STREQ(reinterpret_cast<const char*>(view.get() + arena.place_of(block, 1).value()), "hello");
  arena.release(block);
}

TEST(ArenaView, OfNobodyAndOfWhatCannotBeOpenedIsNull) {
  ProcessIdentity process = this_process();
  process.arena_bytes = 0;
  EXPECT_EQ(open_arena(process), nullptr);
  process = {this_process().host, 1, 1, {}, 12345, 4096};
  EXPECT_EQ(open_arena(process), nullptr);
}

TEST(Arenas, AreOnlyUsedWhenEveryRankHasOne) {
  Arena::make_for_process({.capacity = 64 * kMega, .keep = kMega});
  const ProcessIdentity with = this_process();
  ProcessIdentity without = with;
  without.arena_bytes = 0;
  EXPECT_FALSE(open_arenas({with, without}).used());
  EXPECT_TRUE(open_arenas({with, with}).used());
}

// Groups whose ranks are threads: one arena, which all of them see at the same place.
class InPlace : public ::testing::Test {
 protected:
  void run(int ranks, const std::function<void(Group&)>& body) {
    const auto segment = testing::make_segment(ranks, 512);
    const ArenaView view(std::shared_ptr<void>{}, arena_.base());
    testing::in_threads(ranks, [&](int rank) {
      Arenas arenas{&arena_, std::vector<ArenaView>(static_cast<size_t>(ranks), view)};
      Group group(segment, {.me = {rank, ranks}}, {.timeout = std::chrono::seconds(60), .arenas = std::move(arenas)});
      body(group);
    });
  }

  /// One all_reduce of random values, in the arena on the ranks that `inside` names by their bits.
  void check(Group& group, DType dtype, ReduceOp op, size_t elements, unsigned inside, uint64_t seed) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < group.size(); ++rank)
      inputs.push_back(random_values(dtype, elements, seed * 8 + static_cast<uint64_t>(rank)));
    Bytes own = inputs[static_cast<size_t>(group.rank())];
    const bool in_arena = (inside >> group.rank() & 1) != 0 && !own.empty();
    void* data = in_arena ? arena_.allocate(own.size()) : own.data();
    if (in_arena) std::memcpy(data, own.data(), own.size());
    group.all_reduce(data, elements, dtype, op);
    if (in_arena) {
      std::memcpy(own.data(), data, own.size());
      arena_.release(data);
    }
    ASSERT_EQ(own, reference(dtype, op, inputs)) << "rank " << group.rank() << ", seed " << seed;
  }

  Arena arena_{{.capacity = 64 * kMega, .keep = 8 * kMega}};
};

TEST_F(InPlace, EveryTypeAndOperation) {
  for (const int ranks : {2, 3})
    run(ranks, [&](Group& group) {
      for (const DType dtype : kDTypes)
        for (const ReduceOp op : kReduceOps)
          if (op != ReduceOp::avg || is_floating(dtype)) check(group, dtype, op, 3001, 0xff, 1);
    });
}

TEST_F(InPlace, OneTensorElsewhereAndAllAreStaged) {
  run(3, [&](Group& group) {
    for (unsigned inside = 0; inside < 8; ++inside) check(group, DType::f32, ReduceOp::sum, 5000, inside, inside);
  });
}

TEST_F(InPlace, RandomSizesAndPlaces) {
  for (const int ranks : {2, 4})
    run(ranks, [&](Group& group) {
      std::mt19937 random(7);  // the same on every rank
      for (uint64_t i = 0; i < 300; ++i) {
        const DType dtype = kDTypes[random() % 10];
        const size_t elements = random() % 4000;
        const unsigned inside = random() % 4 == 0 ? random() : 0xff;
        check(group, dtype, ReduceOp::max, elements, inside, i);
      }
    });
}

TEST_F(InPlace, RanksThatDisagreeAllHearOfIt) {
  run(2, [&](Group& group) {
    const size_t elements = group.rank() == 0 ? 5000 : 6000;
    void* data = arena_.allocate(elements * 4);
    EXPECT_THROW(group.all_reduce(data, elements, DType::f32, ReduceOp::sum), UsageError);
    arena_.release(data);
  });
}

}  // namespace
}  // namespace trireme::comm::shm
