#include "trireme/comm/engine/operation.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace trireme::comm {
namespace {

std::string parts(const Operation& operation) {
  return operation.parts == 0 ? "" : fmt::format(" in parts (digest {:08x})", operation.parts & 0xffffffffu);
}

std::string details(const Operation& operation, std::span<const int> names) {
  const int root = called(names, operation.root);
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      return fmt::format(" {}{}", to_string(operation.op), parts(operation));
    case Kind::reduce:
      return fmt::format(" {} to rank {}", to_string(operation.op), root);
    case Kind::broadcast:
      return fmt::format(" from rank {}", root);
    case Kind::all_gather:
      return parts(operation);
    case Kind::gather:
      return fmt::format("{} to rank {}", parts(operation), root);
    case Kind::scatter:
      return fmt::format("{} from rank {}", parts(operation), root);
    case Kind::message:
      return fmt::format(" from rank {} to rank {}", root, called(names, operation.to));
    default:
      return "";
  }
}

std::string tensor(const Operation& operation) {
  return fmt::format("{}{}", to_string(operation.dtype), to_string(operation.dims));
}

std::string message_mismatch(const Operation& sent, const Operation& expected, int from, int to) {
  return fmt::format(
      "message #{} from rank {} to rank {}: rank {} sends {} but rank {} expects {}; both must give the same type and "
      "size",
      sent.sequence, from, to, from, tensor(sent), to, tensor(expected));
}

}  // namespace

Dims::Dims(size_t size) : elements(size), digest(comm::digest({&elements, 1})), shown{size} {}

Dims::Dims(std::span<const int64_t> sizes) : Dims(size_t{1}) {
  if (sizes.empty()) return;
  const std::vector<uint64_t> all(sizes.begin(), sizes.end());
  for (const uint64_t size : all) elements *= size;
  digest = comm::digest(all);
  count = all.size();
  std::copy_n(all.begin(), std::min(all.size(), kShown), shown);
}

std::string to_string(const Dims& dims) {
  const std::span sizes(dims.shown, std::min<size_t>(dims.count, Dims::kShown));
  return fmt::format("[{}{}]", fmt::join(sizes, ", "), dims.count > Dims::kShown ? ", ..." : "");
}

const char* to_string(Kind kind) {
  static constexpr const char* kNames[] = {"barrier", "all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                           "reduce",  "gather",     "scatter",   "all_to_all", "message"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "unknown operation";
}

std::string describe(const Operation& operation, std::span<const int> names) {
  std::string text = to_string(operation.kind);
  if (operation.sequence != 0) text += fmt::format(" #{}", operation.sequence);
  if (operation.kind == Kind::barrier) return text;
  if (operation.kind == Kind::all_to_all) return fmt::format("{} {}", text, to_string(operation.dtype));
  return fmt::format("{} {}{}", text, tensor(operation), details(operation, names));
}

int called(std::span<const int> names, int rank) {
  return names.empty() ? rank : names[static_cast<size_t>(rank)];
}

std::optional<std::string> find_mismatch(std::span<const Operation> by_rank, std::span<const int> names,
                                         std::span<const int> members) {
  const auto name_of = [&](size_t entry) { return called(names, called(members, static_cast<int>(entry))); };
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] == by_rank[0]) continue;
    const int first = name_of(0), other = name_of(rank);
    if (by_rank[0].kind == Kind::message) return message_mismatch(by_rank[0], by_rank[rank], first, other);
    return fmt::format(
        "rank {}: {} but rank {}: {}; all ranks of a group must call the same collectives with the same arguments in "
        "the same order",
        first, describe(by_rank[0], names), other, describe(by_rank[rank], names));
  }
  return std::nullopt;
}

std::optional<std::string> find_mismatch(const Operation& call, std::span<const size_t> table, size_t ranks,
                                         std::span<const int> names) {
  for (size_t from = 0; from < ranks; ++from)
    for (size_t to = 0; to < ranks; ++to) {
      const size_t sent = table[from * 2 * ranks + to], expected = table[to * 2 * ranks + ranks + from];
      if (sent == expected) continue;
      const int sender = called(names, static_cast<int>(from)), receiver = called(names, static_cast<int>(to));
      return fmt::format(
          "{}: rank {} sends {} elements to rank {} but rank {} expects {} from it; both must give the same number",
          describe(call, names), sender, sent, receiver, receiver, expected);
    }
  return std::nullopt;
}

size_t total(std::span<const size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

uint64_t digest(std::span<const uint64_t> sizes) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a over 64-bit words
  for (const uint64_t size : sizes) hash = (hash ^ size) * 1099511628211u;
  return hash;
}

}  // namespace trireme::comm
