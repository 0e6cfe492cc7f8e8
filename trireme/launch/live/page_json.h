// The answers to the page's requests as JSON, and progress.json. Pure.
//
//   response.body = state_json(job);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/live/job_totals.h"
#include "trireme/launch/live/job_view.h"

namespace trireme::launch {

/// By name: the rank that reported it, -1 for the whole job, and its points.
using NamedCurves = std::map<std::string, std::pair<int, std::vector<CurvePoint>>>;

std::string state_json(const JobView& job);
/// What state_json() wrote, without operations and the verdict's kind; nothing when the text is not that.
std::optional<JobView> job_view_from_json(const std::string& text);
/// {"loss": {"rank": 0, "points": [[step, seconds, value], …]}, …}
std::string curves_json(const NamedCurves& curves);
/// [{"rank": 0, "now": …, "names": […], "spans": [[start, length, kind, step, name, bytes], …]}, …]
std::string timelines_json(const std::vector<RankTimeline>& timelines);
std::string log_json(const LogTail& log);
std::string progress_json(const JobView& job);

/// 2026-08-03T14:05:09Z
std::string utc_text(int64_t ms_since_1970);

}  // namespace trireme::launch
