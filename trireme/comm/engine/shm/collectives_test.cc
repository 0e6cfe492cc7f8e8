// Every collective against the plain reference: types x operations x sizes x numbers of ranks, bit for bit.
#include "trireme/comm/engine/shm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "trireme/comm/engine/shm/test_ranks.h"

namespace trireme::comm::shm {
namespace {

using testing::Bytes;
using testing::random_values;
using testing::reference;
using testing::with_group;

constexpr size_t kPiece = 1024;

// Nothing, one, odd, around slices, around the piece, and several pieces.
std::vector<size_t> sizes_for(DType dtype, int ranks) {
  const size_t piece = group_shape(ranks, kPiece).piece_bytes / size_of(dtype);
  return {0, 1, 7, 64, 129, piece - 1, piece, piece + 1, 2 * piece, 3 * piece + 5};
}

bool defined(DType dtype, ReduceOp op) {
  return op != ReduceOp::avg || is_floating(dtype);
}

struct Case {
  DType dtype;
  ReduceOp op;
  size_t elements;
  std::vector<Bytes> inputs;  // by rank
  Bytes expected;
};

std::string name(const Case& c) {
  return fmt::format("{} {}[{}]", to_string(c.op), to_string(c.dtype), c.elements);
}

// `parts`: how many times `elements` each rank gives.
std::vector<Case> reductions(DType dtype, int ranks, size_t parts) {
  std::vector<Case> cases;
  for (const ReduceOp op : kReduceOps)
    for (const size_t elements : sizes_for(dtype, ranks)) {
      if (!defined(dtype, op)) continue;
      Case c{dtype, op, elements, {}, {}};
      for (int rank = 0; rank < ranks; ++rank)
        c.inputs.push_back(random_values(dtype, elements * parts, elements * 100 + static_cast<size_t>(rank)));
      c.expected = reference(dtype, op, c.inputs);
      cases.push_back(std::move(c));
    }
  return cases;
}

std::vector<size_t> equal_counts(int ranks, size_t elements) {
  return std::vector<size_t>(static_cast<size_t>(ranks), elements);
}

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};

TEST_P(Collectives, AllReduce) {
  for (const DType dtype : kDTypes) {
    const auto cases = reductions(dtype, ranks(), 1);
    with_group(ranks(), kPiece, [&](Group& group) {
      for (const Case& c : cases) {
        Bytes data = c.inputs[static_cast<size_t>(group.rank())];
        group.all_reduce(data.data(), c.elements, c.dtype, c.op);
        ASSERT_EQ(data, c.expected) << name(c) << " on rank " << group.rank();
      }
    });
  }
}

TEST_P(Collectives, ReduceScatter) {
  for (const DType dtype : kDTypes) {
    const auto cases = reductions(dtype, ranks(), static_cast<size_t>(ranks()));
    with_group(ranks(), kPiece, [&](Group& group) {
      for (const Case& c : cases) {
        const auto rank = static_cast<size_t>(group.rank());
        const size_t bytes = c.elements * size_of(dtype);
        Bytes output(bytes);
        group.reduce_scatter(c.inputs[rank].data(), equal_counts(ranks(), c.elements), c.dtype, c.op, output.data());
        const auto begin = c.expected.begin() + static_cast<ptrdiff_t>(rank * bytes);
        ASSERT_EQ(output, Bytes(begin, begin + static_cast<ptrdiff_t>(bytes))) << name(c) << " on rank " << rank;
      }
    });
  }
}

TEST_P(Collectives, ReduceChangesTheRootAlone) {
  for (const DType dtype : kDTypes) {
    const auto cases = reductions(dtype, ranks(), 1);
    with_group(ranks(), kPiece, [&](Group& group) {
      int root = 0;
      for (const Case& c : cases) {
        const Bytes& input = c.inputs[static_cast<size_t>(group.rank())];
        Bytes data = input;
        group.reduce(data.data(), c.elements, c.dtype, c.op, root);
        ASSERT_EQ(data, group.rank() == root ? c.expected : input) << name(c) << " on rank " << group.rank();
        root = (root + 1) % ranks();
      }
    });
  }
}

// Parts of a tensor: among them none, one element, and more than one piece.
std::vector<size_t> uneven_counts(int ranks, size_t shift) {
  static constexpr size_t kCounts[] = {0, 1, 403, 66, 1201};
  std::vector<size_t> counts;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank)
    counts.push_back(kCounts[(rank + shift) % std::size(kCounts)]);
  return counts;
}

size_t total(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

Bytes part_of(const Bytes& all, const std::vector<size_t>& counts, size_t rank, size_t width) {
  const auto before = std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(rank), size_t{0});
  const auto begin = all.begin() + static_cast<ptrdiff_t>(before * width);
  return {begin, begin + static_cast<ptrdiff_t>(counts[rank] * width)};
}

TEST_P(Collectives, ReduceScatterUneven) {
  with_group(ranks(), kPiece, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    for (const DType dtype : kDTypes)
      for (const size_t shift : {0u, 1u, 2u, 3u, 4u}) {
        const auto counts = uneven_counts(ranks(), shift);
        std::vector<Bytes> inputs;
        for (size_t k = 0; k < counts.size(); ++k) inputs.push_back(random_values(dtype, total(counts), k));
        Bytes output(counts[rank] * size_of(dtype));
        group.reduce_scatter(inputs[rank].data(), counts, dtype, ReduceOp::max, output.data());
        const Bytes expected = part_of(reference(dtype, ReduceOp::max, inputs), counts, rank, size_of(dtype));
        ASSERT_EQ(output, expected) << to_string(dtype) << " on rank " << rank;
      }
  });
}

TEST_P(Collectives, GatherFillsTheRootAlone) {
  with_group(ranks(), kPiece, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    for (const DType dtype : kDTypes)
      for (int root = 0; root < ranks(); ++root) {
        const auto counts = uneven_counts(ranks(), static_cast<size_t>(root));
        Bytes expected;
        for (size_t k = 0; k < counts.size(); ++k) {
          const Bytes theirs = random_values(dtype, counts[k], k);
          expected.insert(expected.end(), theirs.begin(), theirs.end());
        }
        if (group.rank() != root) expected.clear();
        Bytes output(expected.size());
        group.gather(random_values(dtype, counts[rank], rank).data(), counts, dtype,
                     group.rank() == root ? output.data() : nullptr, root);
        ASSERT_EQ(output, expected) << to_string(dtype) << " to rank " << root;
      }
  });
}

TEST_P(Collectives, Scatter) {
  with_group(ranks(), kPiece, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    for (const DType dtype : kDTypes)
      for (int root = 0; root < ranks(); ++root) {
        const auto counts = uneven_counts(ranks(), static_cast<size_t>(root));
        const Bytes all = random_values(dtype, total(counts), static_cast<size_t>(root));
        Bytes output(counts[rank] * size_of(dtype));
        group.scatter(group.rank() == root ? all.data() : nullptr, counts, dtype, output.data(), root);
        ASSERT_EQ(output, part_of(all, counts, rank, size_of(dtype))) << to_string(dtype) << " from rank " << root;
      }
  });
}

// Rank j sends to rank k so many elements, of these values.
size_t exchanged(size_t j, size_t k, size_t shift) {
  return uneven_counts(static_cast<int>(k + 1), shift + 2 * j).back();
}

void check_all_to_all(Group& group, DType dtype, size_t shift) {
  const auto rank = static_cast<size_t>(group.rank()), ranks = static_cast<size_t>(group.size());
  std::vector<size_t> sent, received;
  Bytes input, expected;
  for (size_t k = 0; k < ranks; ++k) {
    sent.push_back(exchanged(rank, k, shift));
    received.push_back(exchanged(k, rank, shift));
    const Bytes to = random_values(dtype, sent[k], rank * 100 + k);
    const Bytes from = random_values(dtype, received[k], k * 100 + rank);
    input.insert(input.end(), to.begin(), to.end());
    expected.insert(expected.end(), from.begin(), from.end());
  }
  Bytes output(expected.size());
  group.all_to_all(input.data(), sent, dtype, output.data(), received);
  ASSERT_EQ(output, expected) << to_string(dtype) << " on rank " << rank;
}

TEST_P(Collectives, AllToAll) {
  with_group(ranks(), kPiece, [&](Group& group) {
    for (const DType dtype : kDTypes)
      for (const size_t shift : {0u, 1u, 2u, 3u, 4u}) check_all_to_all(group, dtype, shift);
  });
}

TEST_P(Collectives, AllToAllOfNothing) {
  with_group(ranks(), kPiece, [&](Group& group) {
    const std::vector<size_t> none(static_cast<size_t>(ranks()), 0);
    for (int i = 0; i < 3; ++i) group.all_to_all(nullptr, none, DType::f32, nullptr, none);
    EXPECT_EQ(group.sequence(), 3u);
  });
}

TEST_P(Collectives, ReduceScatterIntoItsOwnInput) {
  const auto cases = reductions(DType::f32, ranks(), static_cast<size_t>(ranks()));
  with_group(ranks(), kPiece, [&](Group& group) {
    for (const Case& c : cases) {
      const size_t bytes = c.elements * 4, offset = static_cast<size_t>(group.rank()) * bytes;
      Bytes data = c.inputs[static_cast<size_t>(group.rank())];
      group.reduce_scatter(data.data(), equal_counts(ranks(), c.elements), c.dtype, c.op, data.data() + offset);
      const auto part = [&](const Bytes& all) { return std::span(all).subspan(offset, bytes); };
      ASSERT_TRUE(std::ranges::equal(part(data), part(c.expected))) << name(c);
    }
  });
}

TEST_P(Collectives, Broadcast) {
  with_group(ranks(), kPiece, [&](Group& group) {
    for (const DType dtype : kDTypes)
      for (const size_t elements : sizes_for(dtype, ranks()))
        for (int root = 0; root < ranks(); ++root) {
          Bytes data = random_values(dtype, elements, static_cast<size_t>(group.rank()));
          group.broadcast(data.data(), elements, dtype, root);
          ASSERT_EQ(data, random_values(dtype, elements, static_cast<size_t>(root))) << to_string(dtype) << elements;
        }
  });
}

void check_gather(Group& group, const std::vector<size_t>& sizes, DType dtype) {
  const auto rank = static_cast<size_t>(group.rank());
  const Bytes mine = random_values(dtype, sizes[rank], rank);
  Bytes output(std::accumulate(sizes.begin(), sizes.end(), size_t{0}) * size_of(dtype));
  Bytes expected;
  for (size_t k = 0; k < sizes.size(); ++k) {
    const Bytes theirs = random_values(dtype, sizes[k], k);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  group.all_gather(mine.data(), sizes, dtype, output.data());
  ASSERT_EQ(output, expected) << to_string(dtype) << " on rank " << rank;
}

TEST_P(Collectives, AllGather) {
  with_group(ranks(), kPiece, [&](Group& group) {
    for (const DType dtype : kDTypes)
      for (const size_t elements : sizes_for(dtype, ranks()))
        check_gather(group, equal_counts(ranks(), elements), dtype);
  });
}

TEST_P(Collectives, AllGatherUneven) {
  with_group(ranks(), kPiece, [&](Group& group) {
    for (const DType dtype : kDTypes)
      for (const size_t shift : {0u, 1u, 2u, 3u}) {  // among them: one rank gives nothing, another several pieces
        std::vector<size_t> sizes;
        for (size_t rank = 0; rank < static_cast<size_t>(ranks()); ++rank) sizes.push_back((rank + shift) % 4 * 401);
        check_gather(group, sizes, dtype);
      }
  });
}

TEST_P(Collectives, AllGatherInPlace) {
  with_group(ranks(), kPiece, [&](Group& group) {
    constexpr size_t kCount = 999;
    std::vector<int32_t> output(kCount * static_cast<size_t>(ranks()), -1);
    int32_t* mine = output.data() + kCount * static_cast<size_t>(group.rank());
    std::fill_n(mine, kCount, group.rank());
    group.all_gather(mine, equal_counts(ranks(), kCount), DType::i32, output.data());
    for (size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], static_cast<int32_t>(i / kCount));
  });
}

// Nobody leaves before the last has come.
TEST_P(Collectives, Barrier) {
  std::atomic<int> arrivals = 0;
  with_group(ranks(), kPiece, [&](Group& group) {
    for (int i = 1; i <= 100; ++i) {
      ++arrivals;
      group.barrier();
      ASSERT_GE(arrivals, i * ranks());
    }
    EXPECT_EQ(group.sequence(), 100u);
  });
}

// The same numbers by the one-round way (large pieces) and by the pipelined one (small pieces).
TEST_P(Collectives, TheWayDoesNotChangeTheBits) {
  constexpr size_t kCount = 1500;
  Bytes results[2];
  for (const int way : {0, 1})
    with_group(ranks(), way == 0 ? size_t{1} << 16 : 256, [&](Group& group) {
      Bytes data = random_values(DType::f32, kCount, static_cast<size_t>(group.rank()));
      group.all_reduce(data.data(), kCount, DType::f32, ReduceOp::sum);
      if (group.rank() == 0) results[way] = data;
    });
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(Collectives, SpinningRanksAgreeToo) {
  with_group(
      ranks(), kPiece,
      [&](Group& group) {
        for (int i = 0; i < 200; ++i) {
          int64_t value = group.rank() + i;
          group.all_reduce(&value, 1, DType::i64, ReduceOp::max);
          ASSERT_EQ(value, ranks() - 1 + i);
        }
      },
      std::chrono::seconds(60), 100);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4, 8));

TEST(AllReduce, LargeTensorsWithTheDefaultPiece) {
  constexpr size_t kCount = 3 * (size_t{512} << 10) / 4 + 17;
  with_group(3, Group::Options{}.piece_bytes, [&](Group& group) {
    std::vector<float> data(kCount);
    for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(i % 1000 + static_cast<size_t>(group.rank()));
    group.all_reduce(data.data(), kCount, DType::f32, ReduceOp::avg);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], static_cast<float>(i % 1000 + 1));
  });
}

TEST(AllReduce, TheOneRoundLimitIsARuleOfSizeAndRanks) {
  EXPECT_EQ(one_round_limit(group_shape(2, size_t{512} << 10)), size_t{64} << 10);
  EXPECT_EQ(one_round_limit(group_shape(5, size_t{512} << 10)), size_t{16} << 10);
  EXPECT_EQ(one_round_limit(group_shape(2, 1024)), 1024u);
}

// Rounds are 32 bits: nothing happens where they start again.
TEST(Rounds, WrapAround) {
  const auto segment = testing::make_segment(2, kPiece);
  for (const int rank : {0, 1}) segment->control(rank).published = 0xfffffff0u;
  testing::in_threads(2, [&](int rank) {
    Exchange exchange(segment, {rank, 2}, {.timeout = std::chrono::seconds(60)});
    for (int i = 0; i < 64; ++i) {
      exchange.begin({.kind = Kind::all_reduce, .dtype = DType::i32, .dims = 1});
      int32_t value = i + rank;
      run_all_reduce(exchange, DType::i32, ReduceOp::sum, reinterpret_cast<std::byte*>(&value), 1);
      ASSERT_EQ(value, 2 * i + 1);
    }
  });
}

}  // namespace
}  // namespace trireme::comm::shm
