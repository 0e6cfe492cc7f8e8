#include "trireme/shm/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <bitset>
#include <numeric>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/shm/collectives.h"
#include "trireme/shm/identity.h"

namespace trireme::shm {
namespace {

std::byte* bytes(void* data) {
  return static_cast<std::byte*>(data);
}

const std::byte* bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}

void check_membership(RankInfo me) {
  if (me.size < 1 || me.size > kMaxRanks || me.rank < 0 || me.rank >= me.size)
    throw UsageError("rank {} of {}: a shared-memory group has 1 to {} ranks, counted from 0", me.rank, me.size,
                     kMaxRanks);
}

RankInfo checked_member(const Segment& segment, RankInfo me) {
  check_membership(me);
  if (segment.shape().ranks != me.size)
    throw UsageError("rank {} of {}: the shared memory is for {} ranks", me.rank, me.size, segment.shape().ranks);
  return me;
}

void check_one_host(const std::vector<ProcessIdentity>& ranks) {
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    if (const auto reason = difference(ranks[0].host, ranks[rank].host))
      throw UsageError("ranks 0 and {} cannot share memory: {}; use a network backend between them", rank, *reason);
}

// A rank that dies before its first operation is missed by these numbers too.
void record_processes(const Segment& segment, const std::vector<ProcessIdentity>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ControlBlock& control = segment.control(static_cast<int>(rank));
    control.start_time = ranks[rank].start_time;
    control.pid = ranks[rank].pid;
  }
}

size_t processors_of(const std::vector<ProcessIdentity>& ranks) {
  std::bitset<1024> all;
  for (const ProcessIdentity& rank : ranks) all |= rank.cpus;
  return all.count();
}

}  // namespace

Shape group_shape(int ranks, size_t piece_bytes) {
  return {ranks, round_up(std::max<size_t>(1, piece_bytes), 64 * static_cast<size_t>(ranks))};
}

std::unique_ptr<Group> Group::join(Store& store, const Options& options, Deadline deadline) {
  check_membership(options.me);
  const std::string prefix = fmt::format("shm/{}/", options.name);
  const auto ranks = exchange_identities(store, prefix, options.me, deadline);
  check_one_host(ranks);
  const Shape shape = group_shape(options.me.size, options.piece_bytes);
  const auto segment = meet(store, prefix, options.me, shape, options.files, deadline);
  record_processes(*segment, ranks);
  const int spins = spin_budget(options.me.size, processors_of(ranks));
  return std::make_unique<Group>(segment, options.me, Exchange::Options{.timeout = options.timeout, .spins = spins});
}

Group::Group(const std::shared_ptr<Segment>& segment, RankInfo me, Exchange::Options options)
    : exchange_(segment, checked_member(*segment, me), options) {}

void Group::check_root(int root) const {
  if (root < 0 || root >= size())
    throw UsageError("rank {}: broadcast from rank {}, but the group has ranks 0 to {}", rank(), root, size() - 1);
}

void Group::all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) {
  check_reducible(dtype, op);
  const auto turn = exchange_.begin({.kind = Kind::all_reduce, .dtype = dtype, .op = op, .elements = elements});
  run_all_reduce(exchange_, dtype, op, bytes(data), elements);
}

void Group::broadcast(void* data, size_t elements, DType dtype, int root) {
  check_root(root);
  const auto turn = exchange_.begin({.kind = Kind::broadcast, .dtype = dtype, .root = root, .elements = elements});
  run_broadcast(exchange_, bytes(data), elements * size_of(dtype), root);
}

void Group::all_gather(const void* input, size_t elements, DType dtype, void* output) {
  const auto turn = exchange_.begin({.kind = Kind::all_gather, .dtype = dtype, .elements = elements});
  const std::vector<size_t> sizes(static_cast<size_t>(size()), elements * size_of(dtype));
  run_all_gather(exchange_, bytes(input), sizes, bytes(output));
}

void Group::all_gather_uneven(const void* input, std::span<const size_t> elements, DType dtype, void* output) {
  if (elements.size() != static_cast<size_t>(size()))
    throw UsageError("rank {}: all_gather_uneven with {} sizes for {} ranks; give one for each", rank(),
                     elements.size(), size());
  const size_t total = std::accumulate(elements.begin(), elements.end(), size_t{0});
  const auto turn =
      exchange_.begin({.kind = Kind::all_gather_uneven, .dtype = dtype, .elements = total, .parts = digest(elements)});
  std::vector<size_t> sizes(elements.begin(), elements.end());
  for (size_t& count : sizes) count *= size_of(dtype);
  run_all_gather(exchange_, bytes(input), sizes, bytes(output));
}

void Group::reduce_scatter(const void* input, size_t elements, DType dtype, ReduceOp op, void* output) {
  check_reducible(dtype, op);
  const auto turn = exchange_.begin({.kind = Kind::reduce_scatter, .dtype = dtype, .op = op, .elements = elements});
  run_reduce_scatter(exchange_, dtype, op, bytes(input), elements, bytes(output));
}

void Group::barrier() {
  const auto turn = exchange_.begin({.kind = Kind::barrier});
  exchange_.sync();
}

}  // namespace trireme::shm
