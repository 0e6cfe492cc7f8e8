// shm_latency [RANKS [PIECE_KB]]: how long an all_reduce through shared memory takes between processes of this machine.
//
//   $ build/bin/shm_latency 2
//   bytes | best us | median us | p99 us | GB/s | wrong
//
// Every call is checked: `wrong` counts elements that are not the exact sum, over all ranks' calls on rank 0. GB/s is
// the tensor's size over the median. Each call begins after a barrier, so no rank pays for the lateness of another.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "trireme/comm/engine/shm/group.h"
#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::comm::shm {
namespace {

struct Result {
  std::vector<double> microseconds;  // sorted
  size_t wrong = 0;
};

double at(const Result& result, double share) {
  const auto last = static_cast<double>(result.microseconds.size() - 1);
  return result.microseconds[static_cast<size_t>(share * last)];
}

size_t how_often(size_t bytes) {
  return std::clamp<size_t>((size_t{1} << 29) / std::max<size_t>(bytes, 1), 20, 5000);
}

float value_of(size_t i, int rank) {
  return static_cast<float>(i % 1021 + static_cast<size_t>(rank));
}

size_t count_wrong(const std::vector<float>& data, int ranks) {
  size_t wrong = 0;
  const int ranks_added = ranks * (ranks - 1) / 2;
  const auto added = static_cast<float>(ranks_added);
  for (size_t i = 0; i < data.size(); ++i) wrong += data[i] != value_of(i, 0) * static_cast<float>(ranks) + added;
  return wrong;
}

Result measure(Group& group, size_t bytes) {
  Result result;
  std::vector<float> data(bytes / sizeof(float));
  for (size_t call = 0; call < how_often(bytes); ++call) {
    for (size_t i = 0; i < data.size(); ++i) data[i] = value_of(i, group.rank());
    group.barrier();
    const auto begin = Clock::now();
    group.all_reduce(data.data(), data.size(), DType::f32, ReduceOp::sum);
    result.microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    result.wrong += count_wrong(data, group.size());
  }
  std::sort(result.microseconds.begin(), result.microseconds.end());
  return result;
}

void run_rank(const std::shared_ptr<Segment>& segment, RankInfo me) {
  const int spins = spin_budget(me.size, this_process().cpus.count());
  Group group(segment, {.me = me}, {.spins = spins});
  if (me.rank == 0) fmt::print("bytes | best us | median us | p99 us | GB/s | wrong\n---|---|---|---|---|---\n");
  for (const size_t kilo : {0, 1, 4, 16, 64, 256, 1024, 4096, 25600, 65536}) {
    const size_t bytes = std::max<size_t>(8, kilo << 10);
    const Result result = measure(group, bytes);
    const double median = at(result, 0.5);
    if (me.rank == 0)
      fmt::print("{} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {}\n", bytes, at(result, 0), median, at(result, 0.99),
                 static_cast<double>(bytes) / median / 1000, result.wrong);
    std::fflush(stdout);
  }
}

int run(int ranks, size_t piece_bytes) {
  const Shape shape = group_shape(ranks, piece_bytes);
  const auto segment = Segment::format(SegmentFile::anonymous(shape.total_bytes()).fd(), shape);
  for (int rank = 1; rank < ranks; ++rank)
    if (::fork() == 0) {
      run_rank(segment, {rank, ranks});
      ::_exit(0);
    }
  run_rank(segment, {0, ranks});
  while (::wait(nullptr) > 0) {
  }
  return 0;
}

int64_t argument(int argc, char** argv, int index, int64_t otherwise) {
  if (index >= argc) return otherwise;
  const auto number = parse_int(argv[index], 1, 1 << 20);
  if (!number) throw UsageError("{}: a positive number is needed; usage: shm_latency [RANKS [PIECE_KB]]", argv[index]);
  return *number;
}

}  // namespace
}  // namespace trireme::comm::shm

int main(int argc, char** argv) {
  try {
    using trireme::comm::shm::argument;
    const auto ranks = static_cast<int>(argument(argc, argv, 1, 2));
    const auto piece = static_cast<size_t>(argument(argc, argv, 2, 256)) << 10;
    return trireme::comm::shm::run(ranks, piece);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "shm_latency: {}\n", error.what());
    return error.exit_code();
  }
}
