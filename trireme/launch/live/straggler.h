// Which rank holds the others up in every step, in which phase, and by how much: from the phases that the ranks have
// recorded (RankView::phases). Nobody may be waiting long: a job with a slow rank goes on, only slower.
//
//   StragglerWatch watch;
//   if (auto line = watch.note(job.ranks, Clock::now())) log_warning("{}", *line);
//   "rank 3 is slower than the others: 210 ms a step in the forward pass, the others 115 ms"
//
// Never a proof: nothing is ended because of it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/launch/live/job_view.h"

namespace trireme::launch {

struct Straggler {
  int rank = 0;
  watch::Phase phase = watch::Phase::unknown;
  double ms = 0;         // a step, of this rank in this phase
  double others_ms = 0;  // the mean of the others
};

/// A rank whose own work in a phase takes clearly longer than that of every other rank, and a good part of a step.
/// Nothing while it is not known of all ranks.
std::optional<Straggler> find_straggler(const std::vector<RankView>& ranks);

std::string describe(const Straggler& straggler);

/// Says it when it has been so for 10 s, and again at growing intervals.
class StragglerWatch {
 public:
  std::optional<std::string> note(const std::vector<RankView>& ranks, Clock::time_point now);

 private:
  std::pair<int, watch::Phase> last_{-1, watch::Phase::unknown};
  Clock::time_point since_ = {};
  Clock::time_point again_ = {};
  Millis interval_{0};
};

}  // namespace trireme::launch
