// `--trace steps=FIRST:LAST`: what all ranks did in these steps, on one clock, as Chrome's trace viewer and Perfetto read
// it. Pure.
//
//   align_clocks(nodes);
//   write_file_atomically(log_dir / "trace.json", chrome_trace("job", nodes));
//
// A rank is a process there with these threads: the steps, the training (its phases, and inside them the operations
// that its main thread is in), and lanes for the operations that run beside it.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/live/job_view.h"

namespace trireme::launch {

struct RankTrace {
  int rank = 0;
  std::string host = {};
  std::vector<TimelineSpan> spans = {};
  uint64_t left_out = 0;  // spans after these that did not fit
};
/// Of the ranks of one node, whose clock is the same.
using NodeTrace = std::vector<RankTrace>;

/// Moves the nodes' times onto the clock of the first. A collective ends on all ranks at about the same moment, so the
/// median of the differences between these ends is the difference of the clocks. Nodes without common collectives stay.
void align_clocks(std::vector<NodeTrace>& nodes);

/// What did not fit is counted: {"otherData": {"truncated": 17}}.
std::string chrome_trace(const std::string& job_id, const std::vector<NodeTrace>& nodes);

/// Why there is no trace. `first` and `last`: the steps that were seen; -1: not known.
std::string missing_trace_words(const StepRange& asked, int64_t first, int64_t last);

uint64_t left_out_of(const std::vector<NodeTrace>& nodes);

/// The time lines of a node's view, with the hosts of their ranks.
NodeTrace trace_of(NodeView view);

}  // namespace trireme::launch
