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
// all_gather, reduce_scatter, not even: by the leaders, which move whole hosts' parts.
// barrier: inside, between the leaders, inside.
// gather, scatter, all_to_all: the flat engine; they have nothing to save inside a host. send, recv: inside when both
//   are on one host.
//
// Comparing (compare_calls): before each collective the ranks of a host compare what their callers have asked for, then
//   the leaders, and each leader tells its host. Where somebody differs, all ranks gather all calls, so that everyone
//   gets the same error. Nothing of a collective on which ranks disagree has moved by then.
//
// Every rank of a column calls the same collectives of `across` in the same order, every rank of a host those of
// `inner`: the choices above depend on arguments that are the same on all ranks.
#include "trireme/comm/engine/hierarchical.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "trireme/comm/engine/crossing.h"
#include "trireme/comm/engine/hierarchy_parts_impl.h"
#include "trireme/comm/engine/shm/layout.h"
#include "trireme/comm/engine/topology.h"
#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

constexpr size_t kLong = size_t{64} << 10;  // from here on an all_reduce of this many bytes is split over the places

const std::byte* bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}

std::byte* bytes(void* data) {
  return static_cast<std::byte*>(data);
}

class HierarchicalEngine final : public Engine {
 public:
  HierarchicalEngine(Member member, Hierarchy engines)
      : Engine(std::move(member)),
        topology_(std::move(engines.host_of)),
        host_(topology_.host_of(rank())),
        place_(topology_.place_of(rank())),
        order_(topology_, host_),
        parts_(make_parts(topology_, rank(), std::move(engines))) {}

  const char* name() const override { return "hierarchical"; }

 private:
  void do_all_reduce(const Operation& call, void* data) override {
    const bool split = topology_.even() && places() > 1 && call.dims.elements * size_of(call.dtype) >= kLong;
    if (split)
      all_reduce_split(call, bytes(data));
    else
      all_reduce_by_leaders(call, bytes(data));
  }

  void do_reduce(const Operation& call, void* data) override {
    const size_t elements = call.dims.elements;
    const DType dtype = call.dtype;
    const int root = call.root;
    const int column = column_for(root);
    const bool carries = place_ == column;
    const bool at_home = host_ == topology_.host_of(root);
    const bool keeps = carries && rank() != root;  // its own data must stay, but it works for others
    const Buffer room(keeps ? elements : 0, dtype);
    std::byte* work = keeps ? room.data() : bytes(data);
    if (keeps && elements != 0) std::memcpy(work, data, elements * size_of(dtype));
    Crossing crossing(topology_, host_, dtype, call.op);
    inner([&](Engine& e) { e.reduce(work, call.dims, dtype, crossing.inner_op(), column); });
    if (carries) {
      std::byte* crossed = crossing.begin(work, elements);
      across([&](Engine& e) { e.reduce(crossed, elements, crossing.dtype(), crossing.op(), topology_.host_of(root)); });
      if (at_home) crossing.end(crossed, work, elements);
    }
    if (at_home && column != topology_.place_of(root)) hand_over(work, elements, dtype, column, root, data);
  }

  void do_broadcast(const Operation& call, void* data) override {
    const int column = column_for(call.root);
    const int home = topology_.host_of(call.root);
    const bool root_in_column = topology_.place_of(call.root) == column;
    const auto spread_from = [&](int place) {
      inner([&](Engine& e) { e.broadcast(data, call.dims, call.dtype, place); });
    };
    if (host_ == home && !root_in_column) spread_from(topology_.place_of(call.root));
    if (place_ == column) across([&](Engine& e) { e.broadcast(data, call.dims, call.dtype, home); });
    if (host_ != home || root_in_column) spread_from(column);
  }

  void do_all_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    const Buffer all(total(counts), call.dtype);
    if (topology_.even())
      gather_columns(call, input, counts, all.data());
    else
      gather_hosts(call, input, counts, all.data());
    order_.unpack(all.data(), counts, call.dtype, bytes(output));
  }

  void do_reduce_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    const Buffer packed(total(counts), call.dtype);
    order_.pack(bytes(input), counts, call.dtype, packed.data());
    if (topology_.even())
      scatter_columns(call, packed.data(), counts, bytes(output));
    else
      scatter_hosts(call, packed.data(), counts, bytes(output));
  }

  void do_barrier(const Operation& /*call*/) override {
    const auto meet = [](Engine& engine) { engine.barrier(); };
    inner(meet);
    if (place_ == 0) across(meet);
    inner(meet);
  }

  void do_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    flat([&](Engine& e) { e.gather(input, counts, call.dtype, output, call.root); });
  }
  void do_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    flat([&](Engine& e) { e.scatter(input, counts, call.dtype, output, call.root); });
  }
  void do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) override {
    flat([&](Engine& e) { e.all_to_all(input, sent, call.dtype, output, received); });
  }

  void do_send(const Operation& call, const void* data) override {
    const auto [part, peer] = way_to(call.to);
    part->run([&, to = peer](Engine& e) { e.send(data, call.dims.elements, call.dtype, to); });
  }
  void do_recv(const Operation& call, void* data) override {
    const auto [part, peer] = way_to(call.root);
    part->run([&, from = peer](Engine& e) { e.recv(data, call.dims.elements, call.dtype, from); });
  }

  void do_abort(const Blame& blame) override {
    for (Part* part : {&parts_.inner, &parts_.across, &parts_.flat}) part->engine->abort(blame);
  }

  // --- places

  struct Way {
    Part* part;
    int peer;  // its number in the part
  };
  Way way_to(int rank) {
    const bool near = topology_.host_of(rank) == host_;
    return near ? Way{&parts_.inner, topology_.place_of(rank)} : Way{&parts_.flat, rank};
  }
  int places() const { return static_cast<int>(topology_.members(host_).size()); }
  int column_for(int root) const { return topology_.is_full(topology_.place_of(root)) ? topology_.place_of(root) : 0; }

  template <typename Call>
  void inner(Call call) {
    parts_.inner.run(call);
  }
  template <typename Call>
  void across(Call call) {
    parts_.across.run(call);
  }
  template <typename Call>
  void flat(Call call) {
    parts_.flat.run(call);
  }

  // --- comparing

  void compare(const Operation& call) override {
    bool alike = all_agree(parts_.inner, call, true);
    if (place_ == 0) alike = all_agree(parts_.across, call, alike);
    inner([&](Engine& e) { e.broadcast(&alike, sizeof alike, DType::u8, 0); });
    if (!alike) Engine::compare(call);
  }

  // Whether every member of the part makes this call, and has found its own part alike before.
  static bool all_agree(Part& part, const Operation& call, bool alike) {
    struct Statement {
      Operation call{};
      bool alike = false;
      bool operator==(const Statement&) const = default;
    };
    const Statement mine{call, alike};
    std::vector<Statement> all(part.members.size());
    const std::vector<size_t> counts(all.size(), sizeof mine);
    part.run([&](Engine& e) { e.all_gather(&mine, counts, DType::u8, all.data()); });
    return std::all_of(all.begin(), all.end(), [&](const Statement& one) { return one == Statement{call, true}; });
  }

  // --- ways

  void all_reduce_across(std::byte* data, size_t elements, Crossing& crossing) {
    std::byte* crossed = crossing.begin(data, elements);
    across([&](Engine& e) { e.all_reduce(crossed, elements, crossing.dtype(), crossing.op()); });
    crossing.end(crossed, data, elements);
  }

  void all_reduce_by_leaders(const Operation& call, std::byte* data) {
    Crossing crossing(topology_, host_, call.dtype, call.op);
    inner([&](Engine& e) { e.reduce(data, call.dims, call.dtype, crossing.inner_op(), 0); });
    if (place_ == 0) all_reduce_across(data, call.dims.elements, crossing);
    inner([&](Engine& e) { e.broadcast(data, call.dims, call.dtype, 0); });
  }

  void all_reduce_split(const Operation& call, std::byte* data) {
    std::vector<size_t> slices;
    for (int place = 0; place < places(); ++place)
      slices.push_back(shm::slice_of(call.dims.elements, places(), place).size());
    const size_t mine = slices[static_cast<size_t>(place_)];
    const Buffer slice(mine, call.dtype);
    Crossing crossing(topology_, host_, call.dtype, call.op);
    inner([&](Engine& e) { e.reduce_scatter(data, slices, call.dtype, crossing.inner_op(), slice.data()); });
    all_reduce_across(slice.data(), mine, crossing);
    inner([&](Engine& e) { e.all_gather(slice.data(), slices, call.dtype, data); });
  }

  // From the rank at `place` to the root on the same host. Not by send(), which the caller may be using.
  void hand_over(const std::byte* from, size_t elements, DType dtype, int place, int root, void* to) {
    std::vector<size_t> counts(topology_.members(host_).size(), 0);
    counts[static_cast<size_t>(topology_.place_of(root))] = elements;
    inner([&](Engine& e) { e.scatter(from, counts, dtype, to, place); });
  }

  void gather_columns(const Operation& call, const void* input, Counts counts, std::byte* all) {
    const DType dtype = call.dtype;
    const std::vector<size_t> column = PartOrder::pick(counts, parts_.across.members);
    const Buffer mine(total(column), dtype);
    across([&](Engine& e) { e.all_gather(input, column, dtype, mine.data()); });
    inner([&](Engine& e) { e.all_gather(mine.data(), order_.column_totals(counts), dtype, all); });
  }

  void gather_hosts(const Operation& call, const void* input, Counts counts, std::byte* all) {
    const DType dtype = call.dtype;
    const std::vector<size_t> inside = PartOrder::pick(counts, parts_.inner.members);
    const Buffer block(total(inside), dtype);
    inner([&](Engine& e) { e.gather(input, inside, dtype, block.data(), 0); });
    if (place_ == 0) across([&](Engine& e) { e.all_gather(block.data(), order_.host_totals(counts), dtype, all); });
    inner([&](Engine& e) { e.broadcast(all, total(counts), dtype, 0); });
  }

  void reduce_scatter_across(std::byte* input, Counts counts, Crossing& crossing, size_t mine, std::byte* output) {
    std::byte* crossed = crossing.begin(input, total(counts));
    const Buffer result(mine, crossing.dtype());
    across([&](Engine& e) { e.reduce_scatter(crossed, counts, crossing.dtype(), crossing.op(), result.data()); });
    crossing.end(result.data(), output, mine);
  }

  void scatter_columns(const Operation& call, std::byte* packed, Counts counts, std::byte* output) {
    const std::vector<size_t> totals = order_.column_totals(counts);
    const Buffer column(totals[static_cast<size_t>(place_)], call.dtype);
    Crossing crossing(topology_, host_, call.dtype, call.op);
    inner([&](Engine& e) { e.reduce_scatter(packed, totals, call.dtype, crossing.inner_op(), column.data()); });
    reduce_scatter_across(column.data(), PartOrder::pick(counts, parts_.across.members), crossing,
                          counts[static_cast<size_t>(rank())], output);
  }

  void scatter_hosts(const Operation& call, std::byte* packed, Counts counts, std::byte* output) {
    const std::vector<size_t> inside = PartOrder::pick(counts, parts_.inner.members);
    const Buffer block(total(inside), call.dtype);
    Crossing crossing(topology_, host_, call.dtype, call.op);
    inner([&](Engine& e) { e.reduce(packed, total(counts), call.dtype, crossing.inner_op(), 0); });
    if (place_ == 0) reduce_scatter_across(packed, order_.host_totals(counts), crossing, total(inside), block.data());
    inner([&](Engine& e) { e.scatter(block.data(), inside, call.dtype, output, 0); });
  }

  const Topology topology_;
  const int host_;
  const int place_;
  const PartOrder order_;
  Parts parts_;
};

}  // namespace

std::unique_ptr<Engine> make_hierarchical_engine(Member member, Hierarchy engines) {
  const RankInfo me = member.me;
  if (engines.host_of.size() != static_cast<size_t>(me.size) || me.rank < 0 || me.rank >= me.size)
    throw UsageError("rank {} of {}: host_of names the hosts of {} ranks; it must name one for each", me.rank, me.size,
                     engines.host_of.size());
  return std::make_unique<HierarchicalEngine>(std::move(member), std::move(engines));
}

}  // namespace trireme::comm
