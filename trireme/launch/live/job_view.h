// What a page about a job shows, as plain values: a launcher makes the part of its own ranks, and that of node 0 puts
// the parts of all nodes together.
//
//   store.set(key, to_json(node_view));                   // to node 0
//   NodeView view = node_view_from_json(text);            // throws PeerError when the text is not one
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "trireme/launch/live/rank_history.h"

namespace trireme::launch {

inline constexpr double kUnknown = -1;

struct RankView {
  int rank = 0;
  int node = 0;
  std::string host = {};
  std::string device = {};
  int pid = 0;
  std::string state = {};  // "running", "sleeping", "killed by signal 9 …"
  bool ended = false;
  bool failed = false;
  bool records = false;  // its program uses Trireme; without it only pid, state, CPU and memory are known
  int64_t step = -1;
  watch::Goal goal = {};
  double steps_per_second = kUnknown;
  double samples_per_second = kUnknown;
  int64_t samples = 0;
  double cpu = kUnknown;  // of one core
  double cpu_seconds = kUnknown;
  double memory = kUnknown;  // bytes
  Shares shares = {};
  PhaseTimes phases = {};
  std::string activity = {};  // "all_reduce #17 float[1000]", "in the forward pass"
  int64_t waits_ms = 0;       // in the operation that it is in
  uint64_t lost = 0;          // events that came faster than they were read
  std::map<std::string, double> values = {};
  std::map<std::string, OperationTotals> operations = {};
};

/// The phases have the numbers of watch::Phase. The page knows these numbers too (page/timeline.js).
enum class SpanKind : int {
  step = -1,  // the beginning of one
  unknown,
  data,
  forward,
  backward,
  optimizer,
  evaluation,
  save,
  call,             // an operation that the main thread is in
  background_call,  // an operation that runs beside the main thread
};

/// The spans of a rank's last steps. Times are microseconds since the job began, by the clock of the day.
struct TimelineSpan {
  int64_t start = 0;
  int64_t length = 0;
  SpanKind kind = SpanKind::unknown;
  int64_t step = -1;
  std::string name = {};
  uint64_t bytes = 0;
  uint64_t group = 0;
  uint64_t number = 0;
};

struct RankTimeline {
  int rank = 0;
  int64_t now = 0;
  std::vector<TimelineSpan> spans = {};
  uint64_t left_out = 0;  // of a trace: spans that did not fit
};

/// The end of the log of a rank.
struct LogTail {
  int rank = -1;
  std::string path = {};
  std::string text = {};
};

struct NodeView {
  int node = 0;
  std::vector<RankView> ranks = {};
  std::vector<RankTimeline> timelines = {};
  LogTail log = {};
};

std::string to_json(const NodeView& view);
/// Throws PeerError.
NodeView node_view_from_json(const std::string& text);

/// The newest spans that fit, oldest first. `epoch`: the job's start as of now_ns() of this machine.
RankTimeline timeline_of(int rank, const std::deque<Span>& spans, int64_t epoch, int64_t now, size_t most);
TimelineSpan timeline_span(const Span& span, int64_t epoch);

}  // namespace trireme::launch
