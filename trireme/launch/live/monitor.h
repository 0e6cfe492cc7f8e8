// The launcher's view of its running job, for people and for programs: reads the ranks' rings on a thread of its own,
// keeps live.json, progress.json and history.json in the log folder, serves the dashboard, and writes the trace.
//
//   Monitor monitor({.job_id = "default", .log_dir = "log", …});
//   monitor.begin({.number = 0, .world = facts, .rings = rings});
//   monitor.update(workers, hangs.verdict());            // by the supervisor, about once a second
//   monitor.end_attempt();
//   monitor.finish("failure", 1, failure_screen);
//
// Every node of a job has one; those of other nodes than 0 tell node 0. One monitor serves all attempts in which this
// node has the same number: its page, address, token and curves stay. Nothing here ends or delays a job, except at its
// end: node 0 gives the other nodes 2 s to send what they know, and finish() gives an open page 5 s to learn how the job
// ended, and then 2 s to ask for the end of the log. What a page asks for and the files are formatted without the lock,
// so that update() does not wait for that. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/launch/live/dashboard.h"
#include "trireme/launch/live/job_files.h"
#include "trireme/launch/live/job_totals.h"
#include "trireme/launch/live/live_exchange.h"
#include "trireme/launch/live/node_collector.h"
#include "trireme/launch/live/page_json.h"
#include "trireme/launch/live/straggler.h"
#include "trireme/launch/live/trace_collector.h"

namespace trireme::launch {

class Monitor final : public PageSource {
 public:
  static constexpr Millis kNodeReportTime{2'000};  // for the other nodes to send their last state
  struct Options {
    std::string job_id = {};
    std::string program = {};
    std::string host = {};
    std::string log_dir = {};
    int node = 0;
    bool timelines = false;  // the other nodes send theirs every second, for a page; else only at the end
    std::optional<StepRange> trace = {};
    std::optional<Dashboard::Options> dashboard = {};  // on node 0
    std::function<void(const JobView&)> on_look = {};  // on node 0, about once a second, on the monitor's thread
    Millis quiet_time{500};  // at the end: without a request for so long, the pages have all they need
  };
  struct Attempt {
    int number = 0;                               // also after a change of the nodes, which is not a restart
    std::vector<RankFacts> world = {};            // all ranks of the job, in their order
    std::shared_ptr<const RankRings> rings = {};  // of this node's ranks; null: none
    std::shared_ptr<Store> store = {};            // null on one machine
  };

  /// Throws SystemError when the dashboard cannot listen.
  explicit Monitor(Options options);
  ~Monitor() override;
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  void begin(Attempt attempt);
  /// Of this node's workers, in the order of their ranks.
  void update(std::vector<WorkerState> workers, const watch::Verdict& verdict);
  /// How often a failure has restarted the job.
  void set_restarts(int restarts);
  /// On node 0: waits for what the other nodes know, no longer than `report_time`.
  void end_attempt(Millis report_time = kNodeReportTime);
  /// The failure screen of an attempt, when another attempt follows.
  void show_failure(const std::string& screen);
  /// The last call: writes the final state and ends the thread.
  void finish(const std::string& outcome, int exit_code, const std::string& failure);

  /// Where the page is, without its token; "" without a dashboard.
  std::string url() const;

  std::string state() override;
  std::string curves(std::optional<int> rank) override;
  std::string timelines(const std::vector<int>& ranks) override;
  std::optional<std::string> log(int rank) override;
  std::string metrics() override;
  std::string progress() override;

 private:
  void run();
  void stop();
  void turn();
  void write_files();
  void look(int64_t now) TRIREME_REQUIRES(mutex_);
  void take_other_nodes() TRIREME_REQUIRES(mutex_);
  void note_job_curves(int64_t now) TRIREME_REQUIRES(mutex_);
  void note_remote_curves(const RankView& rank) TRIREME_REQUIRES(mutex_);
  void publish(int64_t now, size_t most_spans) TRIREME_REQUIRES(mutex_);
  void publish_trace() TRIREME_REQUIRES(mutex_);
  void finish_trace(CollectedTrace trace);
  void note_request() TRIREME_REQUIRES(mutex_);
  History history() TRIREME_REQUIRES(mutex_);
  NamedCurves curves_of(std::optional<int> rank) TRIREME_REQUIRES(mutex_);
  std::vector<RankTimeline> timelines_of(const std::vector<int>& ranks, size_t most) TRIREME_REQUIRES(mutex_);
  const std::map<std::string, Curve>* values_of(int rank) const TRIREME_REQUIRES(mutex_);
  NodeView own_view(int64_t now, size_t most_spans) const TRIREME_REQUIRES(mutex_);
  LogTail tail_of(int rank) const TRIREME_REQUIRES(mutex_);
  size_t node_spans() const TRIREME_REQUIRES(mutex_);
  void linger();

  const Options options_;
  const int64_t started_ms_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  bool finished_ TRIREME_GUARDED_BY(mutex_) = false;
  bool final_state_taken_ TRIREME_GUARDED_BY(mutex_) = false;
  Clock::time_point asked_ TRIREME_GUARDED_BY(mutex_) = {};  // by a page
  NodeCollector collector_ TRIREME_GUARDED_BY(mutex_);
  std::vector<WorkerState> workers_ TRIREME_GUARDED_BY(mutex_);
  std::vector<RankFacts> world_ TRIREME_GUARDED_BY(mutex_);
  JobView job_ TRIREME_GUARDED_BY(mutex_);
  StragglerWatch stragglers_ TRIREME_GUARDED_BY(mutex_);
  std::vector<RankTimeline> remote_timelines_ TRIREME_GUARDED_BY(mutex_);
  LogTail remote_log_ TRIREME_GUARDED_BY(mutex_);
  std::map<int, std::map<std::string, Curve>> remote_curves_ TRIREME_GUARDED_BY(mutex_);
  std::map<std::string, Curve> job_curves_ TRIREME_GUARDED_BY(mutex_);
  std::shared_ptr<LiveExchange> exchange_ TRIREME_GUARDED_BY(mutex_);
  TraceCollector traces_ TRIREME_GUARDED_BY(mutex_);
  Millis period_ TRIREME_GUARDED_BY(mutex_){250};
  Deadline next_look_ TRIREME_GUARDED_BY(mutex_) = Deadline::in(Millis(0));
  Deadline next_history_ TRIREME_GUARDED_BY(mutex_) = Deadline::in(Millis(0));
  JobFiles files_;  // used by the thread, and by finish() after it
  std::thread thread_;
  std::unique_ptr<Dashboard> dashboard_;  // last: its threads ask this object
};

}  // namespace trireme::launch
