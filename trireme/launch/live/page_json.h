// The answers to the page's requests as JSON, and progress.json. Pure.
//
//   response.body = state_json(job);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/live/job_view.h"
#include "trireme/watch/verdict.h"

namespace trireme::launch {

struct JobView {
  std::string job_id = {};
  std::string program = {};
  std::string host = {};  // of node 0
  int nodes = 1;
  int world_size = 0;
  int restarts = 0;
  std::string state = "running";  // then "success", "failure" or "interrupted"
  int exit_code = 0;
  int64_t started_ms = 0;  // since 1970
  int64_t now_ms = 0;
  std::vector<RankView> ranks = {};
  watch::Verdict verdict = {};
  std::string failure = {};  // the failure screen; also that of an attempt before this one
  std::string trace = {};    // where the trace is, or what it waits for
};

/// Sums over the ranks that report a value; kUnknown when no rank does.
struct JobTotals {
  int64_t step = -1;      // the lowest: all ranks have reached it
  watch::Goal goal = {};  // of the rank that is furthest behind
  double steps_per_second = kUnknown;
  double samples_per_second = kUnknown;
  Shares shares = {};                         // the mean
  std::optional<int> slowest = {};            // the rank that the others wait for, when that is clear
  std::map<std::string, double> values = {};  // of the lowest rank that has reported them
  std::map<std::string, OperationTotals> operations = {};
};
JobTotals totals_of(const std::vector<RankView>& ranks);
/// At the present speed; nothing when the last step or the speed is not known.
std::optional<double> seconds_left(const JobTotals& totals);

std::string state_json(const JobView& job);
/// What state_json() wrote, without operations and the verdict's kind; nothing when the text is not that.
std::optional<JobView> job_view_from_json(const std::string& text);
/// {"loss": {"rank": 0, "points": [[step, seconds, value], …]}, …}
std::string curves_json(const std::map<std::string, std::pair<int, std::vector<CurvePoint>>>& curves);
/// [{"rank": 0, "now": …, "names": […], "spans": [[start, length, kind, step, name, bytes], …]}, …]
std::string timelines_json(const std::vector<RankTimeline>& timelines);
std::string log_json(const LogTail& log);
std::string progress_json(const JobView& job);

/// 2026-08-03T14:05:09Z
std::string utc_text(int64_t ms_since_1970);

}  // namespace trireme::launch
