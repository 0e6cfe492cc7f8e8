#include "trireme/comm/engine/shm/operation.h"

#include <fmt/core.h>

namespace trireme::shm {
namespace {

const char* to_string(Kind kind) {
  static constexpr const char* kNames[] = {
      "barrier",        "all_reduce", "broadcast", "all_gather", "all_gather_uneven",
      "reduce_scatter", "reduce",     "gather",    "scatter",    "reduce_scatter_uneven",
      "all_to_all",     "message"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "unknown operation";
}

std::string parts(const Operation& operation) {
  return fmt::format(" in parts (digest {:08x})", operation.parts & 0xffffffffu);
}

std::string details(const Operation& operation) {
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      return fmt::format(" {}", shm::to_string(operation.op));
    case Kind::reduce_scatter_uneven:
      return fmt::format(" {}{}", shm::to_string(operation.op), parts(operation));
    case Kind::reduce:
      return fmt::format(" {} to rank {}", shm::to_string(operation.op), operation.root);
    case Kind::broadcast:
    case Kind::message:
      return fmt::format(" from rank {}", operation.root);
    case Kind::all_gather_uneven:
      return parts(operation);
    case Kind::gather:
      return fmt::format("{} to rank {}", parts(operation), operation.root);
    case Kind::scatter:
      return fmt::format("{} from rank {}", parts(operation), operation.root);
    default:
      return "";
  }
}

std::string message_mismatch(const Operation& sent, const Operation& expected, int from, int to) {
  return fmt::format(
      "message #{} from rank {} to rank {}: rank {} sends {}[{}] but rank {} expects {}[{}]; both must give the same "
      "type and size",
      sent.sequence, from, to, from, shm::to_string(sent.dtype), sent.elements, to, shm::to_string(expected.dtype),
      expected.elements);
}

}  // namespace

std::string describe(const Operation& operation) {
  const std::string name = fmt::format("{} #{}", to_string(operation.kind), operation.sequence);
  if (operation.kind == Kind::barrier) return name;
  if (operation.kind == Kind::all_to_all) return fmt::format("{} {}", name, shm::to_string(operation.dtype));
  return fmt::format("{} {}[{}]{}", name, shm::to_string(operation.dtype), operation.elements, details(operation));
}

int called(std::span<const int> names, size_t rank) {
  return names.empty() ? static_cast<int>(rank) : names[rank];
}

std::optional<std::string> find_mismatch(std::span<const Operation> by_rank, std::span<const int> names) {
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] == by_rank[0]) continue;
    if (by_rank[0].kind == Kind::message)
      return message_mismatch(by_rank[0], by_rank[rank], called(names, 0), called(names, rank));
    return fmt::format(
        "rank {}: {} but rank {}: {}; all ranks of a group must call the same collectives with the same "
        "arguments in the same order",
        called(names, 0), describe(by_rank[0]), called(names, rank), describe(by_rank[rank]));
  }
  return std::nullopt;
}

uint64_t digest(std::span<const size_t> sizes) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a over 64-bit words
  for (const size_t size : sizes) hash = (hash ^ size) * 1099511628211u;
  return hash;
}

}  // namespace trireme::shm
