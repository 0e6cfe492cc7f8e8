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

/// What one node has found out about itself and its ways to the others; the coordinator's verdict on all has this form
/// too.
struct NodeReport {
  std::vector<std::string> problems = {};  // no job with these
  bool shared_logs = false;                // another node writes to its log folder
  bool operator==(const NodeReport&) const = default;
};
std::string to_json(const NodeReport& report);
/// Throws PeerError when the text is not from to_json().
NodeReport node_report_from_json(const std::string& text);

struct Clearance {
  bool shared_log_dir = false;  // two nodes write to the same folder; each needs one of its own
};

/// Every node holds a FolderMark. Logs slow clocks and differing programs. Throws PeerError on every node when some
/// node cannot reach another: which, which other, why, what to check.
Clearance check_each_other(const PreflightContext& context);

}  // namespace trireme::launch
