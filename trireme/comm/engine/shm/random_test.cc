// Thousands of random collectives on groups that share ranks, every result checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "trireme/comm/engine/shm/test_ranks.h"

namespace trireme::comm::shm {
namespace {

using testing::Bytes;
using testing::random_values;
using testing::reference;

constexpr int kRanks = 4;
constexpr size_t kSmallPiece = 512;
const std::vector<std::vector<int>> kGroups = {{0, 1, 2, 3}, {0, 1}, {2, 3}, {1, 2}, {0, 2, 3}};

struct Step {
  size_t group;
  Kind kind;
  DType dtype;
  ReduceOp op;
  int root;  // within the group
  size_t elements;
  uint64_t seed;
};

std::vector<Step> random_steps(size_t count) {
  std::mt19937 random(20240607);
  std::vector<Step> steps;
  while (steps.size() < count) {
    Step step{random() % kGroups.size(),
              static_cast<Kind>(random() % 9),
              kDTypes[random() % 10],
              kReduceOps[random() % 5],
              0,
              random() % 4 == 0 ? random() % 700 : random() % 20,
              steps.size()};
    step.root = static_cast<int>(random() % kGroups[step.group].size());
    if (step.op == ReduceOp::avg && !is_floating(step.dtype)) step.op = ReduceOp::sum;
    steps.push_back(step);
  }
  return steps;
}

// One rank's part of one step.
class Player {
 public:
  Player(Group& group, const Step& step) : group_(group), step_(step), ranks_(static_cast<size_t>(group.size())) {}

  void play() {
    if (step_.kind == Kind::barrier) group_.barrier();
    if (step_.kind == Kind::all_reduce) all_reduce();
    if (step_.kind == Kind::broadcast) broadcast();
    if (step_.kind == Kind::all_gather) gather(some_even());
    if (step_.kind == Kind::reduce_scatter) reduce_scatter();
    if (step_.kind == Kind::reduce) reduce();
    if (step_.kind == Kind::gather) gather_to_root();
    if (step_.kind == Kind::scatter) scatter();
    if (step_.kind == Kind::all_to_all) all_to_all();
  }

 private:
  size_t rank() const { return static_cast<size_t>(group_.rank()); }
  Bytes values(size_t of, size_t elements) const { return random_values(step_.dtype, elements, step_.seed * 8 + of); }
  Bytes joined(size_t elements) const {
    std::vector<Bytes> inputs;
    for (size_t k = 0; k < ranks_; ++k) inputs.push_back(values(k, elements));
    return reference(step_.dtype, step_.op, inputs);
  }
  std::vector<size_t> some_even() const {
    return step_.seed % 2 == 0 ? std::vector<size_t>(ranks_, step_.elements) : uneven();
  }
  std::vector<size_t> uneven() const {
    std::vector<size_t> sizes;
    for (size_t k = 0; k < ranks_; ++k) sizes.push_back((step_.elements * (k + 1) + step_.seed) % 300);
    return sizes;
  }

  void all_reduce() {
    Bytes data = values(rank(), step_.elements);
    group_.all_reduce(data.data(), step_.elements, step_.dtype, step_.op);
    EXPECT_EQ(data, joined(step_.elements)) << "step " << step_.seed;
  }
  void broadcast() {
    Bytes data = values(rank(), step_.elements);
    group_.broadcast(data.data(), step_.elements, step_.dtype, step_.root);
    EXPECT_EQ(data, values(static_cast<size_t>(step_.root), step_.elements)) << "step " << step_.seed;
  }
  bool is_root() const { return group_.rank() == step_.root; }
  void reduce() {
    const Bytes input = values(rank(), step_.elements);
    Bytes data = input;
    group_.reduce(data.data(), step_.elements, step_.dtype, step_.op, step_.root);
    EXPECT_EQ(data, is_root() ? joined(step_.elements) : input) << "step " << step_.seed;
  }
  Bytes everyones(const std::vector<size_t>& sizes) const {
    Bytes all;
    for (size_t k = 0; k < ranks_; ++k) {
      const Bytes theirs = values(k, sizes[k]);
      all.insert(all.end(), theirs.begin(), theirs.end());
    }
    return all;
  }
  Bytes part(const Bytes& all, const std::vector<size_t>& sizes) const {
    const size_t before = std::accumulate(sizes.begin(), sizes.begin() + group_.rank(), size_t{0});
    const auto begin = all.begin() + static_cast<ptrdiff_t>(before * size_of(step_.dtype));
    return {begin, begin + static_cast<ptrdiff_t>(sizes[rank()] * size_of(step_.dtype))};
  }
  void gather_to_root() {
    const auto sizes = uneven();
    const Bytes expected = is_root() ? everyones(sizes) : Bytes();
    Bytes output(expected.size());
    group_.gather(values(rank(), sizes[rank()]).data(), sizes, step_.dtype, output.data(), step_.root);
    EXPECT_EQ(output, expected) << "step " << step_.seed;
  }
  void scatter() {
    const auto sizes = uneven();
    const Bytes all = values(99, std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
    Bytes output(sizes[rank()] * size_of(step_.dtype));
    group_.scatter(is_root() ? all.data() : nullptr, sizes, step_.dtype, output.data(), step_.root);
    EXPECT_EQ(output, part(all, sizes)) << "step " << step_.seed;
  }
  void reduce_scatter() {
    const auto sizes = some_even();
    const size_t total = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
    Bytes output(sizes[rank()] * size_of(step_.dtype));
    group_.reduce_scatter(values(rank(), total).data(), sizes, step_.dtype, step_.op, output.data());
    EXPECT_EQ(output, part(joined(total), sizes)) << "step " << step_.seed;
  }
  // Rank j sends to k what the seed says; the parts differ in size and values.
  void all_to_all() {
    std::vector<size_t> sent, received;
    Bytes input, expected;
    const auto count = [&](size_t j, size_t k) { return (step_.elements * (j + 1) + step_.seed * (k + 1)) % 130; };
    for (size_t k = 0; k < ranks_; ++k) {
      sent.push_back(count(rank(), k));
      received.push_back(count(k, rank()));
      const Bytes to = values(rank() * 8 + k, sent[k]), from = values(k * 8 + rank(), received[k]);
      input.insert(input.end(), to.begin(), to.end());
      expected.insert(expected.end(), from.begin(), from.end());
    }
    Bytes output(expected.size());
    group_.all_to_all(input.data(), sent, step_.dtype, output.data(), received);
    EXPECT_EQ(output, expected) << "step " << step_.seed;
  }
  void gather(const std::vector<size_t>& sizes) {
    const Bytes expected = everyones(sizes);
    Bytes output(expected.size());
    const Bytes mine = values(rank(), sizes[rank()]);
    group_.all_gather(mine.data(), sizes, step_.dtype, output.data());
    EXPECT_EQ(output, expected) << "step " << step_.seed;
  }

  Group& group_;
  const Step& step_;
  const size_t ranks_;
};

class World {
 public:
  World() {
    for (const auto& members : kGroups)
      segments_.push_back(testing::make_segment(static_cast<int>(members.size()), kSmallPiece));
  }
  // This rank's face of each group; nothing where it is no member.
  std::vector<std::unique_ptr<Group>> groups_of(int rank) const {
    std::vector<std::unique_ptr<Group>> groups(kGroups.size());
    for (size_t g = 0; g < kGroups.size(); ++g) {
      const auto place = std::find(kGroups[g].begin(), kGroups[g].end(), rank);
      if (place == kGroups[g].end()) continue;
      const RankInfo me{static_cast<int>(place - kGroups[g].begin()), static_cast<int>(kGroups[g].size())};
      groups[g] = std::make_unique<Group>(segments_[g], Member{.me = me},
                                          Exchange::Options{.timeout = std::chrono::seconds(60)});
    }
    return groups;
  }

 private:
  std::vector<std::shared_ptr<Segment>> segments_;
};

size_t how_many() {
  return testing::kSanitized ? 1000 : 10000;
}

TEST(Random, OneThreadPerRank) {
  const auto steps = random_steps(how_many());
  const World world;
  testing::in_threads(kRanks, [&](int rank) {
    const auto groups = world.groups_of(rank);
    for (const Step& step : steps)
      if (groups[step.group]) Player(*groups[step.group], step).play();
  });
}

// As asynchronous operations will run: each group of each rank works off its own queue, at its own pace.
TEST(Random, OneThreadPerRankAndGroup) {
  const auto steps = random_steps(how_many());
  const World world;
  testing::in_threads(kRanks, [&](int rank) {
    const auto groups = world.groups_of(rank);
    testing::in_threads(static_cast<int>(groups.size()), [&](int queue) {
      const auto g = static_cast<size_t>(queue);
      for (const Step& step : steps)
        if (groups[g] && step.group == g) Player(*groups[g], step).play();
    });
  });
}

}  // namespace
}  // namespace trireme::comm::shm
