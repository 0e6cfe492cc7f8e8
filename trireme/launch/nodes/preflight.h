// Before any worker starts, every node tries to reach every other one, and all learn the result.
#pragma once

#include <string>
#include <vector>

#include "trireme/core/token.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/launch/nodes/job_link.h"
#include "trireme/store/store.h"

namespace trireme::launch {

struct PreflightContext {
  Store& store;
  const Token& token;
  const std::vector<Introduction>& nodes;
  int self = 0;               // 0 decides for all
  LostNodes* lost = nullptr;  // where the store's server runs
};

struct Clearance {
  bool shared_log_dir = false;  // two nodes write to the same folder; each needs one of its own
};

/// Logs slow clocks and differing programs. Throws PeerError on every node when some node cannot reach another: which,
/// which other, why, what to check.
Clearance check_each_other(const PreflightContext& context);

}  // namespace trireme::launch
