// Before any worker starts, every node tries to reach every other one, and all learn the result.
#pragma once

#include <filesystem>
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

/// A file in a node's log folder while the nodes meet: another node that finds it there writes to the same folder. Made
/// before the node introduces itself, so that it is there when all have met; removed at the end.
class FolderMark {
 public:
  explicit FolderMark(const Introduction& self);
  ~FolderMark();
  FolderMark(const FolderMark&) = delete;
  FolderMark& operator=(const FolderMark&) = delete;

 private:
  std::filesystem::path path_;
};

struct Clearance {
  bool shared_log_dir = false;  // two nodes write to the same folder; each needs one of its own
};

/// Every node holds a FolderMark. Logs slow clocks and differing programs. Throws PeerError on every node when some node cannot reach another: which,
/// which other, why, what to check.
Clearance check_each_other(const PreflightContext& context);

}  // namespace trireme::launch
