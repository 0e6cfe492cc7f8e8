// Words
//   host, place   rank r is the place_of(r)-th of the ranks of its host (topology.h). Place 0 is the host's leader.
//   column        the ranks with one place, one of each host: the members of `across`.
//   even          every host has equally many ranks.
//   inner, across the engine inside the host, and the one of this rank's column.
//
// all_reduce, short or not even: reduce to the leader inside, all_reduce between the leaders, broadcast inside.
// all_reduce, long and even: reduce_scatter inside, so that each place holds a slice of the host's sum; each column
//   all_reduces its slice; all_gather inside. All ranks of a host use the network at once, each for its part.
// reduce, broadcast: by the column of the root, or by the leaders where some host has no rank at the root's place.
// all_gather, even: each column gathers its parts, then the places of a host exchange their columns.
// reduce_scatter, even: the same backwards. Neither sends anything over the network twice.
// all_gather, reduce_scatter, not even: by the leaders, who move whole hosts' parts.
// barrier: inside, between the leaders, inside.
// gather, scatter, all_to_all: the flat engine; they have nothing to save inside a host. send, recv: inside when both
//   are on one host.
//
// Every rank of a column calls the same collectives of `across` in the same order, every rank of a host those of
// `inner`: the choices above depend on arguments that are the same on all ranks.
#include "trireme/comm/engine/hierarchical.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>

#include "trireme/comm/engine/crossing.h"
#include "trireme/comm/engine/local.h"
#include "trireme/comm/engine/rank_words.h"
#include "trireme/comm/engine/shm/layout.h"
#include "trireme/comm/engine/topology.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

constexpr size_t kLong = size_t{64} << 10;  // from here on an all_reduce of this many bytes is split over the places

const std::byte* bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}

std::byte* bytes(void* data) {
  return static_cast<std::byte*>(data);
}

void copy(void* to, const void* from, size_t size) {
  if (size != 0 && to != from) std::memcpy(to, from, size);
}

// Room for elements, without filling it first.
class Buffer {
 public:
  Buffer(size_t elements, DType dtype)
      : data_(std::make_unique_for_overwrite<std::byte[]>(elements * size_of(dtype) + 1)) {}
  std::byte* data() const { return data_.get(); }

 private:
  std::unique_ptr<std::byte[]> data_;
};

size_t total(std::span<const size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

// One of the engines below, and the words to speak of it.
struct Part {
  std::unique_ptr<Engine> engine;
  std::string where;         // "on host 1 (ranks 2, 3)"
  std::vector<int> members;  // its rank k is rank members[k] of the group
};

Part make_part(const char* what, std::unique_ptr<Engine> engine, std::string where, std::vector<int> members, int me) {
  if (!engine && members.size() == 1) engine = make_local_engine();
  if (!engine) throw UsageError("rank {}: the hierarchy has no {} engine for {}", me, what, name_ranks(members));
  const size_t place = static_cast<size_t>(std::find(members.begin(), members.end(), me) - members.begin());
  const RankInfo wanted{static_cast<int>(place), static_cast<int>(members.size())};
  if (engine->me() != wanted)
    throw UsageError("rank {}: the hierarchy's {} engine is rank {} of {}, but for {} it must be rank {} of {}", me,
                     what, engine->me().rank, engine->me().size, name_ranks(members), wanted.rank, wanted.size);
  return {std::move(engine), std::move(where), std::move(members)};
}

class HierarchicalEngine : public Engine {
 public:
  HierarchicalEngine(RankInfo me, Hierarchy parts)
      : me_(me),
        topology_(std::move(parts.host_of)),
        host_(topology_.host_of(me.rank)),
        place_(topology_.place_of(me.rank)),
        inner_(make_inner(std::move(parts.inner))),
        across_(make_across(std::move(parts.across))),
        flat_(make_flat(std::move(parts.flat))) {}

  const char* name() const override { return "hierarchical"; }
  RankInfo me() const override { return me_; }

  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) override {
    check_reducible(dtype, op);
    const bool split = topology_.even() && places() > 1 && elements * size_of(dtype) >= kLong;
    if (split)
      all_reduce_split(bytes(data), elements, dtype, op);
    else
      all_reduce_by_leaders(bytes(data), elements, dtype, op);
  }

  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    check_reducible(dtype, op);
    check_rank("reduce", root);
    const int column = column_for(root);
    const bool carries = place_ == column;
    const bool at_home = host_ == topology_.host_of(root);
    const bool keeps = carries && me_.rank != root;  // its own data must stay, but it works for others
    const Buffer room(keeps ? elements : 0, dtype);
    std::byte* work = keeps ? room.data() : bytes(data);
    if (keeps) copy(work, data, elements * size_of(dtype));
    Crossing crossing(topology_, host_, dtype, op);
    run("reduce", inner_, [&](Engine& e) { e.reduce(work, elements, dtype, crossing.inner_op(), column); });
    if (carries) {
      std::byte* crossed = crossing.begin(work, elements);
      run("reduce", across_,
          [&](Engine& e) { e.reduce(crossed, elements, crossing.dtype(), crossing.op(), topology_.host_of(root)); });
      if (at_home) crossing.end(crossed, work, elements);
    }
    if (at_home && column != topology_.place_of(root)) hand_over(work, elements, dtype, column, root, data);
  }

  void broadcast(void* data, size_t elements, DType dtype, int root) override {
    check_rank("broadcast", root);
    const int column = column_for(root);
    const bool at_home = host_ == topology_.host_of(root);
    const bool root_in_column = topology_.place_of(root) == column;
    const auto spread_from = [&](int place) {
      run("broadcast", inner_, [&](Engine& e) { e.broadcast(data, elements, dtype, place); });
    };
    if (at_home && !root_in_column) spread_from(topology_.place_of(root));
    if (place_ == column)
      run("broadcast", across_, [&](Engine& e) { e.broadcast(data, elements, dtype, topology_.host_of(root)); });
    if (!at_home || root_in_column) spread_from(column);
  }

  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    check_counts("all_gather", counts);
    const Buffer all(total(counts), dtype);
    if (topology_.even())
      gather_columns(input, counts, dtype, all.data());
    else
      gather_hosts(input, counts, dtype, all.data());
    unpack(all.data(), counts, dtype, bytes(output));
  }

  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    check_reducible(dtype, op);
    check_counts("reduce_scatter", counts);
    const Buffer packed(total(counts), dtype);
    pack(bytes(input), counts, dtype, packed.data());
    if (topology_.even())
      scatter_columns(packed.data(), counts, dtype, op, bytes(output));
    else
      scatter_hosts(packed.data(), counts, dtype, op, bytes(output));
  }

  void barrier() override {
    const auto meet = [](Engine& engine) { engine.barrier(); };
    run("barrier", inner_, meet);
    if (place_ == 0) run("barrier", across_, meet);
    run("barrier", inner_, meet);
  }

  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check_rank("gather", root);
    check_counts("gather", counts);
    run("gather", flat_, [&](Engine& e) { e.gather(input, counts, dtype, output, root); });
  }
  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check_rank("scatter", root);
    check_counts("scatter", counts);
    run("scatter", flat_, [&](Engine& e) { e.scatter(input, counts, dtype, output, root); });
  }
  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    check_counts("all_to_all", sent);
    check_counts("all_to_all", received);
    run("all_to_all", flat_, [&](Engine& e) { e.all_to_all(input, sent, dtype, output, received); });
  }

  void send(const void* data, size_t elements, DType dtype, int to) override {
    check_peer("send", to);
    const auto [part, number] = way_to(to);
    run("send", *part, [&, peer = number](Engine& e) { e.send(data, elements, dtype, peer); });
  }
  void recv(void* data, size_t elements, DType dtype, int from) override {
    check_peer("recv", from);
    const auto [part, number] = way_to(from);
    run("recv", *part, [&, peer = number](Engine& e) { e.recv(data, elements, dtype, peer); });
  }

  void abort(std::string_view reason) override {
    fail(fmt::format("rank {} aborted the group: {}", me_.rank, reason), reason);
  }

 private:
  // --- making

  Part make_inner(std::unique_ptr<Engine> engine) const {
    const std::vector<int>& mates = topology_.members(host_);
    return make_part("inner", std::move(engine), fmt::format("on host {} ({})", host_, name_ranks(mates)), mates,
                     me_.rank);
  }
  Part make_across(std::unique_ptr<Engine> engine) const {
    const std::vector<int> column = topology_.column(place_);
    return make_part("across", std::move(engine), fmt::format("between the hosts ({})", name_ranks(column)), column,
                     me_.rank);
  }
  Part make_flat(std::unique_ptr<Engine> engine) const {
    std::vector<int> all(static_cast<size_t>(me_.size));
    std::iota(all.begin(), all.end(), 0);
    return make_part("flat", std::move(engine), "between all ranks", all, me_.rank);
  }

  // --- checking

  void check_rank(const char* what, int rank) const {
    if (rank < 0 || rank >= me_.size)
      throw UsageError("rank {}: {} with rank {}, but the group has ranks 0 to {}", me_.rank, what, rank, me_.size - 1);
  }
  void check_peer(const char* what, int rank) const {
    check_rank(what, rank);
    if (rank == me_.rank) throw UsageError("rank {}: {} with itself; copy the data instead", me_.rank, what);
  }
  void check_counts(const char* what, Counts counts) const {
    if (counts.size() != static_cast<size_t>(me_.size))
      throw UsageError("rank {}: {} with {} counts for {} ranks; give one for each", me_.rank, what, counts.size(),
                       me_.size);
  }

  // --- failing

  template <typename Call>
  void run(const char* what, Part& part, Call call) {
    check_alive();
    const auto explain = [&](const Error& error) {
      std::string text =
          fmt::format("rank {}: {} {}: {}", me_.rank, what, part.where, in_group_numbers(error.what(), part.members));
      fail(text, text);
      return text;
    };
    try {
      call(*part.engine);
    } catch (const UsageError& error) {
      throw UsageError("{}", explain(error));
    } catch (const PeerError& error) {
      throw PeerError("{}", explain(error));
    } catch (const Error& error) {
      explain(error);
      throw;
    }
  }
  void check_alive() {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw PeerError("{}", failure_);
  }
  // The first reason stays, and ends what any member of any part waits for.
  void fail(const std::string& failure, std::string_view reason) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.empty()) return;
      failure_ = failure;
    }
    const std::string told = fmt::format("{}{}", kWholeGroup, reason);
    for (Part* part : {&inner_, &across_, &flat_}) part->engine->abort(told);
  }

  // --- places and orders

  int places() const { return static_cast<int>(topology_.members(host_).size()); }
  int column_for(int root) const { return topology_.is_full(topology_.place_of(root)) ? topology_.place_of(root) : 0; }
  struct Way {
    Part* part;
    int number;  // of the peer in it
  };
  Way way_to(int rank) {
    const bool near = topology_.host_of(rank) == host_;
    return near ? Way{&inner_, topology_.place_of(rank)} : Way{&flat_, rank};
  }
  static std::vector<size_t> pick(Counts counts, const std::vector<int>& ranks) {
    std::vector<size_t> picked;
    for (const int rank : ranks) picked.push_back(counts[static_cast<size_t>(rank)]);
    return picked;
  }
  std::vector<size_t> host_totals(Counts counts) const {
    std::vector<size_t> totals;
    for (int host = 0; host < topology_.hosts(); ++host) totals.push_back(total(pick(counts, topology_.members(host))));
    return totals;
  }
  std::vector<size_t> column_totals(Counts counts) const {
    std::vector<size_t> totals;
    for (int place = 0; place < places(); ++place) totals.push_back(total(pick(counts, topology_.column(place))));
    return totals;
  }
  // The ranks as the parts' collectives line them up: column by column when even, else host by host.
  std::vector<int> order() const {
    std::vector<int> ranks;
    const int groups = topology_.even() ? places() : topology_.hosts();
    for (int i = 0; i < groups; ++i) {
      const std::vector<int> next = topology_.even() ? topology_.column(i) : topology_.members(i);
      ranks.insert(ranks.end(), next.begin(), next.end());
    }
    return ranks;
  }
  template <typename Visit>
  void for_each_part(Counts counts, DType dtype, Visit visit) const {
    std::vector<size_t> starts;
    size_t start = 0;
    for (const size_t count : counts) starts.push_back(std::exchange(start, start + count * size_of(dtype)));
    size_t packed = 0;
    for (const int rank : order()) {
      const size_t size = counts[static_cast<size_t>(rank)] * size_of(dtype);
      visit(starts[static_cast<size_t>(rank)], packed, size);
      packed += size;
    }
  }
  void pack(const std::byte* from, Counts counts, DType dtype, std::byte* to) const {
    for_each_part(counts, dtype, [&](size_t at, size_t packed, size_t size) { copy(to + packed, from + at, size); });
  }
  void unpack(const std::byte* from, Counts counts, DType dtype, std::byte* to) const {
    for_each_part(counts, dtype, [&](size_t at, size_t packed, size_t size) { copy(to + at, from + packed, size); });
  }

  // --- ways

  void all_reduce_across(std::byte* data, size_t elements, Crossing& crossing) {
    std::byte* crossed = crossing.begin(data, elements);
    run("all_reduce", across_, [&](Engine& e) { e.all_reduce(crossed, elements, crossing.dtype(), crossing.op()); });
    crossing.end(crossed, data, elements);
  }

  void all_reduce_by_leaders(std::byte* data, size_t elements, DType dtype, ReduceOp op) {
    Crossing crossing(topology_, host_, dtype, op);
    run("all_reduce", inner_, [&](Engine& e) { e.reduce(data, elements, dtype, crossing.inner_op(), 0); });
    if (place_ == 0) all_reduce_across(data, elements, crossing);
    run("all_reduce", inner_, [&](Engine& e) { e.broadcast(data, elements, dtype, 0); });
  }

  void all_reduce_split(std::byte* data, size_t elements, DType dtype, ReduceOp op) {
    std::vector<size_t> slices;
    for (int place = 0; place < places(); ++place) slices.push_back(shm::slice_of(elements, places(), place).size());
    const size_t mine = slices[static_cast<size_t>(place_)];
    const Buffer slice(mine, dtype);
    Crossing crossing(topology_, host_, dtype, op);
    run("all_reduce", inner_,
        [&](Engine& e) { e.reduce_scatter(data, slices, dtype, crossing.inner_op(), slice.data()); });
    all_reduce_across(slice.data(), mine, crossing);
    run("all_reduce", inner_, [&](Engine& e) { e.all_gather(slice.data(), slices, dtype, data); });
  }

  // From the rank at `place` to the root on the same host. Not by send(), which the caller may be using.
  void hand_over(const std::byte* from, size_t elements, DType dtype, int place, int root, void* to) {
    std::vector<size_t> counts(topology_.members(host_).size(), 0);
    counts[static_cast<size_t>(topology_.place_of(root))] = elements;
    run("reduce", inner_, [&](Engine& e) { e.scatter(from, counts, dtype, to, place); });
  }

  void gather_columns(const void* input, Counts counts, DType dtype, std::byte* all) {
    const std::vector<size_t> column = pick(counts, across_.members);
    const Buffer mine(total(column), dtype);
    run("all_gather", across_, [&](Engine& e) { e.all_gather(input, column, dtype, mine.data()); });
    run("all_gather", inner_, [&](Engine& e) { e.all_gather(mine.data(), column_totals(counts), dtype, all); });
  }

  void gather_hosts(const void* input, Counts counts, DType dtype, std::byte* all) {
    const std::vector<size_t> mates = pick(counts, inner_.members);
    const Buffer block(total(mates), dtype);
    run("all_gather", inner_, [&](Engine& e) { e.gather(input, mates, dtype, block.data(), 0); });
    if (place_ == 0)
      run("all_gather", across_, [&](Engine& e) { e.all_gather(block.data(), host_totals(counts), dtype, all); });
    run("all_gather", inner_, [&](Engine& e) { e.broadcast(all, total(counts), dtype, 0); });
  }

  void reduce_scatter_across(std::byte* input, Counts counts, Crossing& crossing, size_t mine, std::byte* output) {
    std::byte* crossed = crossing.begin(input, total(counts));
    const Buffer result(mine, crossing.dtype());
    run("reduce_scatter", across_,
        [&](Engine& e) { e.reduce_scatter(crossed, counts, crossing.dtype(), crossing.op(), result.data()); });
    crossing.end(result.data(), output, mine);
  }

  void scatter_columns(std::byte* packed, Counts counts, DType dtype, ReduceOp op, std::byte* output) {
    const std::vector<size_t> totals = column_totals(counts);
    const Buffer column(totals[static_cast<size_t>(place_)], dtype);
    Crossing crossing(topology_, host_, dtype, op);
    run("reduce_scatter", inner_,
        [&](Engine& e) { e.reduce_scatter(packed, totals, dtype, crossing.inner_op(), column.data()); });
    reduce_scatter_across(column.data(), pick(counts, across_.members), crossing, counts[static_cast<size_t>(me_.rank)],
                          output);
  }

  void scatter_hosts(std::byte* packed, Counts counts, DType dtype, ReduceOp op, std::byte* output) {
    const std::vector<size_t> mates = pick(counts, inner_.members);
    const Buffer block(total(mates), dtype);
    Crossing crossing(topology_, host_, dtype, op);
    run("reduce_scatter", inner_, [&](Engine& e) { e.reduce(packed, total(counts), dtype, crossing.inner_op(), 0); });
    if (place_ == 0) reduce_scatter_across(packed, host_totals(counts), crossing, total(mates), block.data());
    run("reduce_scatter", inner_, [&](Engine& e) { e.scatter(block.data(), mates, dtype, output, 0); });
  }

  const RankInfo me_;
  const Topology topology_;
  const int host_;
  const int place_;
  Part inner_;
  Part across_;
  Part flat_;
  std::mutex mutex_;
  std::string failure_;  // GUARDED_BY(mutex_); of the first error
};

}  // namespace

std::unique_ptr<Engine> make_hierarchical_engine(RankInfo me, Hierarchy parts) {
  if (parts.host_of.size() != static_cast<size_t>(me.size) || me.rank < 0 || me.rank >= me.size)
    throw UsageError("rank {} of {}: host_of names the hosts of {} ranks; it must name one for each", me.rank, me.size,
                     parts.host_of.size());
  return std::make_unique<HierarchicalEngine>(me, std::move(parts));
}

}  // namespace trireme
