#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "trireme/comm/engine/hierarchy_parts_impl.h"
#include "trireme/comm/engine/local.h"
#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

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

}  // namespace

Parts make_parts(const Topology& topology, int rank, Hierarchy engines) {
  const int host = topology.host_of(rank);
  const std::vector<int>& inside = topology.members(host);
  const std::vector<int> column = topology.column(topology.place_of(rank));
  std::vector<int> all(static_cast<size_t>(topology.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return {make_part("inner", std::move(engines.inner), fmt::format("on host {} ({})", host, name_ranks(inside)), inside,
                    rank),
          make_part("across", std::move(engines.across), fmt::format("between the hosts ({})", name_ranks(column)),
                    column, rank),
          make_part("flat", std::move(engines.flat), "between all ranks", all, rank)};
}

std::vector<size_t> PartOrder::pick(Counts counts, const std::vector<int>& ranks) {
  std::vector<size_t> picked;
  for (const int rank : ranks) picked.push_back(counts[static_cast<size_t>(rank)]);
  return picked;
}

std::vector<size_t> PartOrder::host_totals(Counts counts) const {
  std::vector<size_t> totals;
  for (int host = 0; host < topology_.hosts(); ++host) totals.push_back(total(pick(counts, topology_.members(host))));
  return totals;
}

std::vector<size_t> PartOrder::column_totals(Counts counts) const {
  std::vector<size_t> totals;
  for (int place = 0; place < places(); ++place) totals.push_back(total(pick(counts, topology_.column(place))));
  return totals;
}

// The ranks column by column when even, else host by host.
std::vector<int> PartOrder::order() const {
  std::vector<int> ranks;
  const int groups = topology_.even() ? places() : topology_.hosts();
  for (int i = 0; i < groups; ++i) {
    const std::vector<int> next = topology_.even() ? topology_.column(i) : topology_.members(i);
    ranks.insert(ranks.end(), next.begin(), next.end());
  }
  return ranks;
}

template <typename Visit>
void PartOrder::for_each_part(Counts counts, DType dtype, Visit visit) const {
  std::vector<size_t> starts;
  size_t start = 0;
  for (const size_t count : counts) starts.push_back(std::exchange(start, start + count * size_of(dtype)));
  size_t packed = 0;
  for (const int rank : order()) {
    const size_t size = counts[static_cast<size_t>(rank)] * size_of(dtype);
    if (size != 0) visit(starts[static_cast<size_t>(rank)], packed, size);
    packed += size;
  }
}

void PartOrder::pack(const std::byte* from, Counts counts, DType dtype, std::byte* to) const {
  for_each_part(counts, dtype,
                [&](size_t at, size_t packed, size_t size) { std::memcpy(to + packed, from + at, size); });
}

void PartOrder::unpack(const std::byte* from, Counts counts, DType dtype, std::byte* to) const {
  for_each_part(counts, dtype,
                [&](size_t at, size_t packed, size_t size) { std::memcpy(to + at, from + packed, size); });
}

}  // namespace trireme::comm
