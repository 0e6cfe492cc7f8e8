#include "trireme/comm/engine/shm/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <bitset>
#include <vector>

#include "trireme/comm/engine/shm/collectives.h"
#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/error.h"

namespace trireme::comm::shm {
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

Member checked_member(const Segment& segment, Member member) {
  const RankInfo me = member.me;
  check_membership(me);
  if (segment.shape().ranks != me.size)
    throw UsageError("rank {} of {}: the shared memory is for {} ranks", me.rank, me.size, segment.shape().ranks);
  return member;
}

Exchange::Options with_names(Exchange::Options options, const RankNames& names) {
  options.names = names;
  return options;
}

void check_one_host(const std::vector<ProcessIdentity>& ranks, const RankNames& names) {
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    if (const auto reason = difference(ranks[0].host, ranks[rank].host))
      throw UsageError("ranks {} and {} cannot share memory: {}; use a network backend between them", called(names, 0),
                       called(names, static_cast<int>(rank)), *reason);
}

// A rank that dies before its first operation is missed by these numbers too.
void record_processes(const Segment& segment, const std::vector<ProcessIdentity>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ControlBlock& control = segment.control(static_cast<int>(rank));
    control.start_time = ranks[rank].start_time;
    control.pid = ranks[rank].pid;
  }
}

std::vector<size_t> times(std::span<const size_t> counts, size_t width) {
  std::vector<size_t> sizes(counts.begin(), counts.end());
  for (size_t& size : sizes) size *= width;
  return sizes;
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

std::unique_ptr<Group> Group::join(std::shared_ptr<Store> store, const Options& options, Deadline deadline) {
  const RankInfo me = options.member.me;
  check_membership(me);
  const std::string prefix = fmt::format("shm/{}/", options.name);
  const auto ranks = exchange_identities(*store, prefix, me, deadline);
  check_one_host(ranks, options.member.names);
  const auto segment = meet(*store, prefix, me, group_shape(me.size, options.piece_bytes), options.files, deadline);
  record_processes(*segment, ranks);
  const int spins = spin_budget(me.size, processors_of(ranks));
  auto group = std::make_unique<Group>(
      segment, options.member,
      Exchange::Options{.timeout = options.timeout, .spins = spins, .arenas = open_arenas(ranks)});
  group->channels_ =
      std::make_unique<Channels>(Channels::Options{.store = std::move(store),
                                                   .prefix = prefix,
                                                   .group = segment,
                                                   .me = me,
                                                   .names = options.member.names,
                                                   .piece_bytes = std::min(options.piece_bytes, kChannelPiece),
                                                   .timeout = options.timeout,
                                                   .spins = spins,
                                                   .files = options.files});
  return group;
}

Group::Group(const std::shared_ptr<Segment>& segment, Member member, Exchange::Options options)
    : Engine(checked_member(*segment, std::move(member))),
      exchange_(segment, me(), with_names(std::move(options), names())) {}

void Group::do_all_reduce(const Operation& call, void* data) {
  exchange_.begin(call);
  run_all_reduce(exchange_, call.dtype, call.op, bytes(data), call.dims.elements);
}

void Group::do_reduce(const Operation& call, void* data) {
  exchange_.begin(call);
  run_reduce(exchange_, call.dtype, call.op, bytes(data), call.dims.elements, call.root);
}

void Group::do_broadcast(const Operation& call, void* data) {
  exchange_.begin(call);
  run_broadcast(exchange_, bytes(data), call.dims.elements * size_of(call.dtype), call.root);
}

void Group::do_all_gather(const Operation& call, const void* input, Counts counts, void* output) {
  exchange_.begin(call);
  run_gather(exchange_, bytes(input), times(counts, size_of(call.dtype)), bytes(output), kEveryone);
}

void Group::do_gather(const Operation& call, const void* input, Counts counts, void* output) {
  exchange_.begin(call);
  run_gather(exchange_, bytes(input), times(counts, size_of(call.dtype)), bytes(output), call.root);
}

void Group::do_scatter(const Operation& call, const void* input, Counts counts, void* output) {
  exchange_.begin(call);
  run_scatter(exchange_, bytes(input), times(counts, size_of(call.dtype)), bytes(output), call.root);
}

void Group::do_reduce_scatter(const Operation& call, const void* input, Counts counts, void* output) {
  exchange_.begin(call);
  run_reduce_scatter(exchange_, call.dtype, call.op, bytes(input), counts, bytes(output));
}

void Group::do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) {
  exchange_.begin(call);
  run_all_to_all(exchange_, size_of(call.dtype), bytes(input), sent, bytes(output), received);
}

void Group::do_barrier(const Operation& call) {
  exchange_.begin(call);
  exchange_.sync();
}

Channels& Group::channels() {
  if (!channels_)
    throw UsageError("rank {}: a group made by hand has no store in which two ranks could meet; use join()", rank());
  return *channels_;
}

void Group::do_send(const Operation& call, const void* data) {
  channels().transfer(call, bytes(const_cast<void*>(data)));  // the root of a broadcast only reads
}

void Group::do_recv(const Operation& call, void* data) {
  channels().transfer(call, bytes(data));
}

}  // namespace trireme::comm::shm
