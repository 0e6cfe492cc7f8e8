// What the hierarchical engine is made of: the engines below it, and the order in which parts travel between them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/engine/engine.h"
#include "trireme/comm/engine/hierarchical.h"
#include "trireme/comm/engine/topology.h"

namespace trireme::comm {

/// Room for elements, without filling it first.
class Buffer {
 public:
  Buffer(size_t elements, DType dtype)
      : data_(std::make_unique_for_overwrite<std::byte[]>(elements * size_of(dtype) + 1)) {}
  std::byte* data() const { return data_.get(); }

 private:
  std::unique_ptr<std::byte[]> data_;
};

/// One of the engines below, and its name in messages.
struct Part {
  std::unique_ptr<Engine> engine;
  std::string where;         // "on host 1 (ranks 2, 3)"
  std::vector<int> members;  // its rank k is rank members[k] of the group

  /// Runs an operation of the part. What it throws says where.
  template <typename Call>
  void run(Call call) {
    try {
      call(*engine);
    } catch (const Disagreement& error) {
      throw Disagreement("{}: {}", where, error.what());
    } catch (const PeerError& error) {
      throw PeerError({.rank = error.rank(), .reason = fmt::format("{}: {}", where, error.reason())});
    }
  }
};

struct Parts {
  Part inner;
  Part across;
  Part flat;
};

/// UsageError when an engine is missing or is not this rank's in its part.
Parts make_parts(const Topology& topology, int rank, Hierarchy engines);

/// Which counts, and in which order, the parts' collectives work on.
class PartOrder {
 public:
  using Counts = Engine::Counts;
  PartOrder(const Topology& topology, int host) : topology_(topology), host_(host) {}

  static std::vector<size_t> pick(Counts counts, const std::vector<int>& ranks);
  std::vector<size_t> host_totals(Counts counts) const;
  std::vector<size_t> column_totals(Counts counts) const;
  /// From rank order to the order of the parts' collectives, and back.
  void pack(const std::byte* from, Counts counts, DType dtype, std::byte* to) const;
  void unpack(const std::byte* from, Counts counts, DType dtype, std::byte* to) const;

 private:
  int places() const { return static_cast<int>(topology_.members(host_).size()); }
  std::vector<int> order() const;
  template <typename Visit>
  void for_each_part(Counts counts, DType dtype, Visit visit) const;

  const Topology& topology_;
  const int host_;
};

}  // namespace trireme::comm
