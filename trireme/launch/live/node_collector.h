// What the ranks of this node do: reads their rings again and again, and asks the kernel about their processes.
//
//   NodeCollector collector({.node = 0, .epoch = watch::now_ns()});
//   collector.begin(ranks, rings);                       // an attempt at the job
//   collector.read_events();                             // several times a second
//   collector.look(workers, watch::now_ns());            // once a second
//   for (const RankView& rank : collector.ranks()) …
//
// The histories of ranks go on when the job is restarted. Thread rule: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/live/job_view.h"
#include "trireme/launch/live/rank_rings.h"
#include "trireme/watch/process_usage.h"

namespace trireme::launch {

/// What the plan says about a rank.
struct RankFacts {
  int rank = 0;
  int node = 0;
  std::string host = {};
  std::string device = {};
  std::string log = {};  // path of its log file, on its node
};

/// What the supervisor knows about one of its workers.
struct WorkerState {
  int pid = 0;
  bool ended = false;
  bool failed = false;
  std::string words = {};  // of its end
};

class NodeCollector {
 public:
  struct Options {
    int node = 0;
    int64_t epoch = 0;  // the job's start, as of watch::now_ns()
    std::optional<StepRange> traced = {};
  };
  explicit NodeCollector(Options options) : options_(options) {}

  /// `rings`, of these ranks in this order, may be null: then only the processes are known.
  void begin(const std::vector<RankFacts>& ranks, std::shared_ptr<const RankRings> rings);
  /// Releases the rings. The last state stays readable.
  void end() {
    rings_.reset();
    over_ = true;
  }
  /// The largest number of new events that a rank had.
  size_t read_events();
  void look(const std::vector<WorkerState>& workers, int64_t now);
  void move_epoch(int64_t epoch) { options_.epoch = epoch; }
  int64_t epoch() const { return options_.epoch; }

  const std::vector<RankView>& ranks() const { return views_; }
  /// With what has not ended yet, which ends at `now`.
  std::vector<RankTimeline> timelines(int64_t now, size_t most_spans) const;
  std::optional<RankTimeline> timeline(int rank, int64_t now, size_t most_spans) const;
  /// Null when the rank is not one of this node.
  const RankHistory* history(int rank) const;

  /// Whether all ranks that record have come to the end of the steps that are traced; and these steps.
  bool trace_complete() const;
  std::vector<RankTimeline> trace(size_t most_spans) const;

 private:
  struct Local {
    RankFacts facts;
    uint64_t next_event = 0;
    double cpu_seconds = kUnknown;  // at `looked`
    int64_t looked = 0;
    int pid = 0;
  };
  RankHistory& history_of(int rank);
  const watch::Ring* ring_of(int rank) const;
  void look(size_t place, const WorkerState& worker, int64_t now);
  void look_at_process(Local& local, RankView& view, int64_t now);
  void look_at_ring(const watch::Ring& ring, RankView& view, int64_t now);
  void look_at_shares(const watch::Ring& ring, RankView& view, int64_t now);

  Options options_;
  std::vector<Local> locals_;
  std::vector<RankView> views_;
  std::shared_ptr<const RankRings> rings_;
  bool over_ = false;  // the attempt
  std::map<int, RankHistory> histories_;
};

}  // namespace trireme::launch
