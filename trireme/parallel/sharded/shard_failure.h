// What has gone wrong in a sharded model. libtorch lets no exception out of an operator, so the first failure there waits
// for the next call that can throw; the other ranks fail at once.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "trireme/parallel/sharded/shard_unit.h"

namespace trireme::parallel {

/// Thread rule: one thread at a time.
class ShardFailure {
 public:
  explicit ShardFailure(const UnitGroups& groups) : groups_(groups) {}

  bool happened() const { return failure_ != nullptr; }
  /// The first failure, if there was one.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// The operator goes on without values; the next rethrow() throws.
  void later(const std::exception_ptr& failure, const char* text) noexcept;

  /// Ends the groups of this model on all ranks.
  void abort(std::string_view reason) noexcept;
  /// The same, and a UsageError here.
  [[noreturn]] void fail(const std::string& reason);

 private:
  UnitGroups groups_;
  std::exception_ptr failure_;
};

}  // namespace trireme::parallel
