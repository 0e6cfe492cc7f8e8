#include "trireme/parallel/sharded/shard_failure.h"

#include "trireme/comm/members.h"
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
    log_warning("{}: cannot tell the others that the sharded model has failed: {}", own_place(groups_.reduce),
                error.what());
  }
}

void ShardFailure::fail(const std::string& reason) {
  abort(reason);
  throw UsageError("{}: {}", own_place(groups_.reduce), reason);
}

}  // namespace trireme::parallel
