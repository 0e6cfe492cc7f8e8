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
  std::error_code failed, ignored;
  std::vector<fs::path> logs;
  for (fs::directory_iterator group(folder, failed), end; !failed && group != end; group.increment(failed)) {
    if (group->is_symlink(ignored)) continue;
    std::error_code unread;
    for (fs::directory_iterator entry(*group, unread); !unread && entry != end; entry.increment(unread))
      if (is_infer_log(entry->path().filename().string(), node) && !entry->is_directory(ignored))
        logs.push_back(entry->path());
  }
  return logs;
}

}  // namespace

bool leads_out(const fs::path& folder, const fs::path& path) {
  std::error_code no_folder, no_way;
  const fs::path inside = fs::canonical(folder, no_folder), parent = fs::weakly_canonical(path.parent_path(), no_way);
  return no_folder || no_way || !is_inside(inside, parent);
}

void remove_inside(const fs::path& folder, const fs::path& path) {
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(path, failed))) return;
  if (leads_out(folder, path))
    throw UsageError("{} is not removed, because {} leads out of {}; move it away", path.string(),
                     path.parent_path().string(), folder.string());
  fs::remove_all(path, failed);
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
