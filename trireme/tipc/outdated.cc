#include "trireme/tipc/outdated.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"

namespace trireme::tipc {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& folder, const fs::path& path) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

/// In the folders of all combinations.
std::vector<fs::path> old_infer_logs(const fs::path& folder, int node) {
  std::error_code ignored;
  std::vector<fs::path> logs;
  for (const auto& group : fs::directory_iterator(folder, ignored)) {
    if (group.is_symlink(ignored)) continue;
    for (const auto& entry : fs::directory_iterator(group, ignored))
      if (is_infer_log(entry.path().filename().string(), node) && !entry.is_directory(ignored))
        logs.push_back(entry.path());
  }
  return logs;
}

}  // namespace

void remove_inside(const fs::path& folder, const fs::path& path) {
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(path, failed))) return;
  const fs::path parent = fs::canonical(path.parent_path(), failed);
  if (!failed && !is_inside(fs::canonical(folder, failed), parent))
    throw UsageError("{} is not removed, because {} leads out of {}; move it away", path.string(),
                     path.parent_path().string(), folder.string());
  if (!failed) fs::remove_all(path, failed);
  if (failed) throw SystemError(failed.value(), "cannot remove {}, which an earlier run left", path.string());
}

void remove_old_logs(const fs::path& folder, const std::vector<Step>& steps) {
  std::set<int> nodes;
  for (const Step& step : steps) {
    remove_inside(folder, step.log);
    nodes.insert(step.node);
  }
  for (const int node : nodes)
    for (const fs::path& log : old_infer_logs(folder, node)) remove_inside(folder, log);
}

}  // namespace trireme::tipc
