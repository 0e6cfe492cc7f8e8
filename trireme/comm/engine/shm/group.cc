#include "trireme/comm/engine/shm/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <bitset>
#include <numeric>
#include <vector>

#include "trireme/comm/engine/shm/collectives.h"
#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/error.h"

namespace trireme::shm {
namespace {

constexpr size_t kChannelPiece = size_t{128} << 10;  // there may be as many channels as pairs of ranks

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

std::vector<size_t> equal_parts(int ranks, size_t elements) {
  return std::vector<size_t>(static_cast<size_t>(ranks), elements);
}

std::vector<size_t> times(std::span<const size_t> counts, size_t width) {
  std::vector<size_t> sizes(counts.begin(), counts.end());
  for (size_t& size : sizes) size *= width;
  return sizes;
}

size_t total(std::span<const size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
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
  auto group = std::make_unique<Group>(
      segment, options.me, Exchange::Options{.timeout = options.timeout, .spins = spins, .arenas = open_arenas(ranks)});
  group->channels_ = std::make_unique<Channels>(
      Channels::Options{.store = store,
                        .prefix = prefix,
                        .group = segment,
                        .me = options.me,
                        .piece_bytes = std::min(options.piece_bytes, kChannelPiece),
                        .timeout = options.timeout,
                        .spins = spins,
                        .files = options.files,
                        .on_failure = [raw = group.get()](std::string_view reason) { raw->abort(reason); }});
  return group;
}

Group::Group(const std::shared_ptr<Segment>& segment, RankInfo me, Exchange::Options options)
    : exchange_(segment, checked_member(*segment, me), std::move(options)) {}

void Group::check_root(const char* what, int root) const {
  if (root < 0 || root >= size())
    throw UsageError("rank {}: {} rank {}, but the group has ranks 0 to {}", rank(), what, root, size() - 1);
}

void Group::check_counts(const char* what, Counts counts) const {
  if (counts.size() != static_cast<size_t>(size()))
    throw UsageError("rank {}: {} with {} sizes for {} ranks; give one for each", rank(), what, counts.size(), size());
}

void Group::all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) {
  check_reducible(dtype, op);
  const auto turn = exchange_.begin({.kind = Kind::all_reduce, .dtype = dtype, .op = op, .elements = elements});
  run_all_reduce(exchange_, dtype, op, bytes(data), elements);
}

void Group::reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) {
  check_reducible(dtype, op);
  check_root("reduce to", root);
  const auto turn =
      exchange_.begin({.kind = Kind::reduce, .dtype = dtype, .op = op, .root = root, .elements = elements});
  run_reduce(exchange_, dtype, op, bytes(data), elements, root);
}

void Group::broadcast(void* data, size_t elements, DType dtype, int root) {
  check_root("broadcast from", root);
  const auto turn = exchange_.begin({.kind = Kind::broadcast, .dtype = dtype, .root = root, .elements = elements});
  run_broadcast(exchange_, bytes(data), elements * size_of(dtype), root);
}

void Group::all_gather(const void* input, size_t elements, DType dtype, void* output) {
  const auto turn = exchange_.begin({.kind = Kind::all_gather, .dtype = dtype, .elements = elements});
  run_all_gather(exchange_, bytes(input), times(equal_parts(size(), elements), size_of(dtype)), bytes(output));
}

void Group::all_gather_uneven(const void* input, Counts elements, DType dtype, void* output) {
  check_counts("all_gather_uneven", elements);
  const auto turn = exchange_.begin(
      {.kind = Kind::all_gather_uneven, .dtype = dtype, .elements = total(elements), .parts = digest(elements)});
  run_all_gather(exchange_, bytes(input), times(elements, size_of(dtype)), bytes(output));
}

void Group::gather(const void* input, Counts elements, DType dtype, void* output, int root) {
  check_root("gather to", root);
  check_counts("gather", elements);
  const auto turn = exchange_.begin(
      {.kind = Kind::gather, .dtype = dtype, .root = root, .elements = total(elements), .parts = digest(elements)});
  run_gather(exchange_, bytes(input), times(elements, size_of(dtype)), bytes(output), root);
}

void Group::scatter(const void* input, Counts elements, DType dtype, void* output, int root) {
  check_root("scatter from", root);
  check_counts("scatter", elements);
  const auto turn = exchange_.begin(
      {.kind = Kind::scatter, .dtype = dtype, .root = root, .elements = total(elements), .parts = digest(elements)});
  run_scatter(exchange_, bytes(input), times(elements, size_of(dtype)), bytes(output), root);
}

void Group::reduce_scatter(const void* input, size_t elements, DType dtype, ReduceOp op, void* output) {
  check_reducible(dtype, op);
  const auto turn = exchange_.begin({.kind = Kind::reduce_scatter, .dtype = dtype, .op = op, .elements = elements});
  run_reduce_scatter(exchange_, dtype, op, bytes(input), equal_parts(size(), elements), bytes(output));
}

void Group::reduce_scatter_uneven(const void* input, Counts elements, DType dtype, ReduceOp op, void* output) {
  check_reducible(dtype, op);
  check_counts("reduce_scatter_uneven", elements);
  const auto turn = exchange_.begin({.kind = Kind::reduce_scatter_uneven,
                                     .dtype = dtype,
                                     .op = op,
                                     .elements = total(elements),
                                     .parts = digest(elements)});
  run_reduce_scatter(exchange_, dtype, op, bytes(input), elements, bytes(output));
}

void Group::all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) {
  check_counts("all_to_all", sent);
  check_counts("all_to_all", received);
  const auto turn = exchange_.begin({.kind = Kind::all_to_all, .dtype = dtype});
  run_all_to_all(exchange_, size_of(dtype), bytes(input), sent, bytes(output), received);
}

void Group::barrier() {
  const auto turn = exchange_.begin({.kind = Kind::barrier});
  exchange_.sync();
}

Channels& Group::channels() {
  if (!channels_)
    throw UsageError("rank {}: a group made by hand has no store in which two ranks could meet; use join()", rank());
  exchange_.throw_if_failed();
  return *channels_;
}

void Group::send(const void* data, size_t elements, DType dtype, int to) {
  channels().send(data, elements, dtype, to);
}

void Group::recv(void* data, size_t elements, DType dtype, int from) {
  channels().recv(data, elements, dtype, from);
}

}  // namespace trireme::shm
