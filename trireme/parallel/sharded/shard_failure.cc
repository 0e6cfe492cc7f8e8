#include "trireme/parallel/sharded/shard_failure.h"

#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::parallel {

void ShardFailure::later(const std::exception_ptr& failure, const char* text) noexcept {
  if (failure_) return;
  failure_ = failure;
  log_error("{}", text);
  abort(text);
}

void ShardFailure::abort(std::string_view reason) noexcept {
  try {
    groups_.gather.abort(reason);
    groups_.reduce.abort(reason);
  } catch (const std::exception& error) {
    log_warning("rank {}: cannot tell the others that the sharded model has failed: {}", groups_.reduce.rank(),
                error.what());
  }
}

void ShardFailure::fail(const std::string& reason) {
  abort(reason);
  throw UsageError("rank {}: {}", groups_.reduce.rank(), reason);
}

}  // namespace trireme::parallel
