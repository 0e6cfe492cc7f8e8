#include <fmt/core.h>
#include <torch/torch.h>

#include <cmath>

#include "cases.h"
#include "modes.h"
#include "trireme/core/error.h"
#include "trireme/store/store.h"

namespace trireme::ranks {
namespace {

const Shape kScalar = {};
const Shape kEmpty = {0, 4};
const Shape kUsual = {2, 3, 4, 5};
const Shape kLargerThanABuffer = {3, 100003};
const Shape kMegabytes = {3, 350003};

class Matrix {
 public:
  explicit Matrix(const Group& group) : group_(group) {}

  void every_type(const Kind& kind) {
    if (!kind.moves_tensors) return several_times(kind);
    for (const torch::ScalarType type : kTypes)
      for (const ReduceOp op : kOps) {
        if (!kind.reduces && op != ReduceOp::sum) continue;
        if (!has_reduction(type, op)) {
          refuse(kind, type, op);
          continue;
        }
        for (const Layout layout : kLayouts) both_forms(kind, {.type = type, .op = op, .layout = layout});
        for (const Shape& shape : {kScalar, kEmpty}) both_forms(kind, {.type = type, .op = op, .shape = shape});
      }
  }
  void large(const Kind& kind, torch::ScalarType type, const Shape& shape) {
    run_one(kind, {.type = type, .layout = Layout::transposed, .shape = shape, .async = true});
  }
  int count() const { return count_; }

 private:
  void several_times(const Kind& kind) {
    for (int i = 0; i < 16; ++i) both_forms(kind, {});
  }
  void both_forms(const Kind& kind, Case c) {
    for (const bool async : {false, true}) {
      c.async = async;
      run_one(kind, c);
    }
  }
  void run_one(const Kind& kind, Case c) {
    c.group = group_;
    c.seed = static_cast<uint64_t>(++count_);
    c.root = count_ % group_.size();
    run(kind, c);
  }
  void refuse(const Kind& kind, torch::ScalarType type, ReduceOp op) {
    const Case c{.group = group_, .type = type, .op = op};
    try {
      kind.start(c).work.wait();
    } catch (const UsageError&) {
      return;
    }
    throw Mismatch(c.describe(kind.name) + " was not refused");
  }

  const Group group_;
  int count_ = 0;
};

template <typename F>
void expect_refusal(const char* what, F f) {
  try {
    f();
  } catch (const UsageError&) {
    return;
  }
  throw Mismatch(fmt::format("{} was not refused", what));
}

// Wrong on this rank alone, so nothing is sent and the group stays usable.
void check_refusals(const Group& group) {
  const torch::Tensor x = torch::ones({4});
  Tensors too_many(static_cast<size_t>(group.size()) + 1, x);
  const std::vector<int64_t> bad_lengths(static_cast<size_t>(group.size()), 3);
  expect_refusal("broadcast from a rank that does not exist", [&] { broadcast(x, group.size(), group); });
  expect_refusal("reduce to rank -1", [&] { reduce(x, -1, ReduceOp::sum, group); });
  expect_refusal("an undefined tensor", [&] { all_reduce(torch::Tensor(), ReduceOp::sum, group); });
  expect_refusal("a sparse tensor", [&] { all_reduce(x.to_sparse(), ReduceOp::sum, group); });
  expect_refusal("one output too many", [&] { all_gather(too_many, x, group); });
  expect_refusal("an output of the wrong size", [&] { all_gather(torch::ones({4 * group.size() + 1}), x, group); });
  expect_refusal("an output of the wrong type",
                 [&] { all_gather(torch::ones({4 * group.size()}, torch::kInt), x, group); });
  expect_refusal("lengths that do not add up", [&] { all_to_all(x, x, bad_lengths, bad_lengths, group); });
  expect_refusal("a group with a rank twice", [&] { group.new_group({0, 0}); });
  expect_refusal("a group with a rank that does not exist", [&] { group.new_group({group.size()}); });
  expect_refusal("a group of nobody", [&] { group.new_group({}); });
  expect_refusal("an operation of a group of others", [&] { all_reduce(x, ReduceOp::sum, Group()); });
  run(find_kind("all_reduce"), {.group = group});
}

void expect_ranks(const char* what, const Group& group, const std::vector<int>& wanted) {
  if (group.ranks() != wanted)
    throw Mismatch(fmt::format("{}: the ranks {}, not {}", what, c10::str(group.ranks()), c10::str(wanted)));
}

// Groups with other members and in another order than the world, and groups of groups.
void check_groups(const World& world) {
  std::vector<int> reversed, even;
  for (int rank = 0; rank < world.size(); ++rank) {
    reversed.insert(reversed.begin(), rank);
    if (rank % 2 == 0) even.push_back(rank);
  }
  const Group backwards = world.new_group(reversed);
  expect_ranks("new_group", backwards, reversed);
  const Group same = world.split(0, -world.rank());
  expect_ranks("split by key", same, reversed);
  const Group half = world.split(world.rank() % 2);
  if (world.rank() % 2 == 0) expect_ranks("split by color", half, even);
  const Group nobody = world.split(world.rank() == 0 ? -1 : 1);
  if (nobody.is_member() != (world.rank() != 0)) throw Mismatch("split with a negative color");
  const Group alone = world.new_group({world.rank()});
  if (alone.backend() != (world.backend() == "mpi" ? "mpi" : "local"))
    throw Mismatch("a group of one moves its tensors by " + alone.backend());
  const Group quarter = half.split(half.rank() % 2);
  for (const Group& group : {backwards, same, half, nobody, alone, quarter})
    if (group.is_member())
      for (const char* kind : {"all_reduce_same_bits", "all_gather", "all_to_all_uneven", "ring", "broadcast_object"})
        run(find_kind(kind), {.group = group, .root = group.size() - 1});
}

// Nobody may pass before all have come.
void check_barrier(const World& world) {
  if (!world.store()) return;  // mpirun hosts none
  for (int i = 0; i < 10; ++i) {
    const std::string key = fmt::format("barrier/{}", i);
    world.store()->add(key, 1);
    i % 2 == 0 ? barrier() : barrier_async().wait();
    const int64_t here = world.store()->add(key, 0);
    if (here != world.size())
      throw Mismatch(fmt::format("a barrier let go when {} of {} had come", here, world.size()));
  }
}

// A second operation follows the first on one tensor, though nobody has waited for that.
void check_order(const Group& group) {
  const torch::Tensor x = torch::full({1000}, static_cast<float>(group.rank() + 1));
  std::vector<Work> works = {broadcast_async(x, group.size() - 1, group), all_reduce_async(x, ReduceOp::sum, group),
                             all_reduce_async(x, ReduceOp::max, group)};
  works.back().wait();
  const auto size = static_cast<float>(group.size());
  ranks::expect_equal("three operations on one tensor", x, torch::full({1000}, size * size));
  for (const Work& work : works)
    if (!work.done()) throw Mismatch("an earlier operation is not done when a later one is");
}

// A NaN of any rank is the maximum and the minimum, on all of them.
void check_not_a_number(const Group& group) {
  for (const torch::ScalarType type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16})
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min})
      for (int odd = 0; odd < group.size(); ++odd) {
        torch::Tensor x = torch::full({3}, group.rank() - 1, type);
        if (group.rank() == odd) x[1].fill_(std::nan(""));
        all_reduce(x, op, group);
        const double most = op == ReduceOp::max ? group.size() - 2 : -1;
        ranks::expect_equal("the numbers beside a NaN", torch::stack({x[0], x[2]}), torch::full({2}, most, type));
        if (!x[1].isnan().item<bool>())
          throw Mismatch(fmt::format("{} of a NaN on rank {}", op == ReduceOp::max ? "max" : "min", odd));
      }
}

// Results that are written where another part is still read.
void check_shared_memory(const Group& group) {
  const int size = group.size();
  const torch::Tensor columns = torch::arange(size), mine = columns * size + group.rank();
  torch::Tensor x = group.rank() * size + columns;
  all_to_all(x, x, {}, {}, group);
  ranks::expect_equal("all_to_all in place", x, mine);
  torch::Tensor all = torch::zeros({2 * size}, torch::kLong);
  all.narrow(0, 0, 2).fill_(group.rank());
  all_gather(all, all.narrow(0, 0, 2), group);
  ranks::expect_equal("all_gather of the first part", all, columns.repeat_interleave(2));
  if (size == 1) return;
  Tensors twice(static_cast<size_t>(size), torch::zeros({1}));
  try {
    all_gather(twice, torch::ones({1}), group);
  } catch (const UsageError&) {
    return;
  }
  throw Mismatch("a list that names one tensor several times was taken for the results");
}

void check_restart() {
  destroy_parallel_env();
  if (is_initialized()) throw Mismatch("initialized after destroy_parallel_env()");
  const World again = init_parallel_env();
  run(find_kind("all_reduce"), {.group = again});
}

}  // namespace

void run_matrix(const World& world) {
  Matrix matrix(world);
  for (const Kind& kind : kinds())
    if (kind.name != "all_reduce") matrix.every_type(kind);  // all_reduce_same_bits is that, and more
  for (const Kind& kind : kinds()) matrix.large(kind, torch::kFloat, kLargerThanABuffer);
  for (const torch::ScalarType type : {torch::kFloat, torch::kBFloat16})
    for (const char* name : {"all_reduce", "broadcast", "all_gather_single", "reduce_scatter_single", "ring"})
      matrix.large(find_kind(name), type, kMegabytes);
  check_refusals(world);
  check_barrier(world);
  check_order(world);
  check_not_a_number(world);
  check_shared_memory(world);
  check_groups(world);
  if (world.rank() == 0) fmt::print("{} operations as they must be, by {}\n", matrix.count(), get_backend());
  if (world.backend() != "mpi") check_restart();
}

}  // namespace trireme::ranks
