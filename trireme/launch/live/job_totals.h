// A job as node 0 knows it, and sums over its ranks. Pure.
//
//   const JobTotals totals = totals_of(job.ranks);
//   if (const auto left = seconds_left(totals)) …
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
  Shares shares = {};                         // the mean of the ranks that run
  std::optional<int> slowest = {};            // the rank that the others wait for, when that is clear
  std::map<std::string, double> values = {};  // of the lowest rank that has reported them
  std::map<std::string, OperationTotals> operations = {};
};
JobTotals totals_of(const std::vector<RankView>& ranks);
/// At the present speed; nothing when the last step or the speed is not known.
std::optional<double> seconds_left(const JobTotals& totals);

}  // namespace trireme::launch
