#include "trireme/shm/operation.h"

#include <fmt/core.h>

namespace trireme::shm {
namespace {

const char* to_string(Kind kind) {
  static constexpr const char* kNames[] = {"barrier",    "all_reduce",        "broadcast",
                                           "all_gather", "all_gather_uneven", "reduce_scatter"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "unknown operation";
}

std::string details(const Operation& operation) {
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
      return fmt::format(" {}", shm::to_string(operation.op));
    case Kind::broadcast:
      return fmt::format(" from rank {}", operation.root);
    case Kind::all_gather_uneven:
      return fmt::format(" in parts (digest {:08x})", operation.parts & 0xffffffffu);
    default:
      return "";
  }
}

}  // namespace

std::string describe(const Operation& operation) {
  const std::string name = fmt::format("{} #{}", to_string(operation.kind), operation.sequence);
  if (operation.kind == Kind::barrier) return name;
  return fmt::format("{} {}[{}]{}", name, shm::to_string(operation.dtype), operation.elements, details(operation));
}

std::optional<std::string> find_mismatch(std::span<const Operation> by_rank) {
  for (size_t rank = 1; rank < by_rank.size(); ++rank)
    if (by_rank[rank] != by_rank[0])
      return fmt::format(
          "rank 0: {} but rank {}: {}; all ranks of a group must call the same collectives with the same "
          "arguments in the same order",
          describe(by_rank[0]), rank, describe(by_rank[rank]));
  return std::nullopt;
}

uint64_t digest(std::span<const size_t> sizes) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a over 64-bit words
  for (const size_t size : sizes) hash = (hash ^ size) * 1099511628211u;
  return hash;
}

}  // namespace trireme::shm
