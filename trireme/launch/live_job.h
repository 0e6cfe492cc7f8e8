// What the ranks of a running job do, for `trireme top` and `trireme doctor --job`.
//
//   fmt::print("{}", live_job_report("log").text);       // the log folder of a job, its id, or its launcher's pid
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/live/page_json.h"
#include "trireme/watch/snapshot.h"

namespace trireme::launch {

struct LiveRank {
  watch::RankSnapshot seen;
  int pid = 0;  // 0: it has not recorded anything yet
};

/// The log folder of a job that is named by its folder, its launcher's pid or its id. Throws UsageError.
std::filesystem::path live_job_folder(const std::string& job);
/// What the launcher of node 0 has written last into its log folder about the ranks of all nodes; the job may run on
/// another machine. The state is "gone" when that launcher was killed. Throws UsageError.
JobView live_job_view(const std::filesystem::path& folder);

struct LiveReport {
  std::string text;                      // for people
  std::optional<LiveRank> culprit = {};  // a rank of this machine that the others wait for
};
/// What the ranks of all nodes do, where this is node 0, and who waits for whom. Waits of a few seconds count. Throws
/// UsageError when there is no such job, or nothing of it can be read.
LiveReport live_job_report(const std::string& job);
/// Where it is stuck. Takes seconds.
std::string stack_text(const LiveRank& rank);

}  // namespace trireme::launch
