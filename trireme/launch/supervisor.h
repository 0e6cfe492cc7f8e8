// One attempt at the job on this node: starts the workers, watches them, and stops them when the job is over for any
// reason. All waiting is in one place (proc::ProcessSet); all deciding is in JobState and JobLink.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/launch/early_ends.h"
#include "trireme/launch/hang_watch.h"
#include "trireme/launch/job_state.h"
#include "trireme/launch/live/monitor.h"
#include "trireme/launch/machine/local_node.h"
#include "trireme/launch/nodes/link_probe.h"
#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/plan.h"
#include "trireme/launch/report/failure_report.h"
#include "trireme/proc/console.h"
#include "trireme/proc/log_file.h"
#include "trireme/proc/memory_kill.h"
#include "trireme/proc/process_set.h"
#include "trireme/proc/signals.h"

namespace trireme::launch {

/// What the supervisor is given and does not own.
struct SupervisorContext {
  const Request& request;
  const JobPlan& plan;
  int attempt = 0;
  Meeting& meeting;
  const LocalNode& node;
  proc::SignalGate& signals;
  proc::Console& console;
  int end_of_input = -1;  // --ssh: a descriptor whose end of file means that the terminal is gone; -1: none
  Monitor& monitor;
};

/// How the attempt ended on this node.
struct AttemptResult {
  JobOutcome outcome;
  std::vector<WorkerEnding> workers = {};  // of this node
  bool unkillable = false;                 // a worker survived SIGKILL
  int interrupted = 0;                     // the first signal that this launcher was sent, or 0
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorContext& context);
  ~Supervisor();
  AttemptResult run();

 private:
  struct Worker;
  const NodeInfo& this_node() const { return context_.plan.nodes[static_cast<size_t>(context_.meeting.node())]; }
  void start_workers();
  proc::ProcessSpec spec_of(const Worker& worker, const std::vector<int>& cpus) const;
  bool gets_terminal(const WorkerPlan& plan) const;
  void open_log(Worker& worker);
  void write_backup_environment(Worker& worker);

  void turn();
  void handle(proc::Event& event);
  void handle_exit(Worker& worker, const proc::Event& event);
  void send_due_signals();
  void handle_terminal();
  void handle_signal(int signal);
  void pass_on(int signal);
  void interrupt(int signal);
  void emit(Worker& worker, proc::Stream stream, const std::string& text);
  void flush_held_lines(bool all);
  void say_log_error(const std::optional<std::string>& problem);
  void look_after_logs();
  void note_end(Worker& worker);
  void confirm_early_ends();
  WorkerEnding culprit_behind(const Worker& worker);
  WorkerEnding late_rank(int victim, const watch::Verdict& verdict);
  void look_for_hangs();
  void begin_monitor();
  void tell_monitor(bool now);
  void end_hanging_job();
  void look_at_links();
  void consult_link();
  Deadline next_look() const;
  bool over() const;
  WorkerEnding ending_of(const Worker& worker) const;
  WorkerEnding ending_of_rank(int rank) const;

  SupervisorContext context_;
  JobState state_;
  EarlyEnds early_ends_;
  proc::MemoryKillWatch memory_;
  UniqueFd token_file_;
  std::shared_ptr<const RankRings> rings_;  // null: the ranks are not watched
  HangWatch hangs_;
  std::unique_ptr<LinkProbe> links_;  // null: one machine, or the ranks are not watched
  std::vector<std::unique_ptr<Worker>> workers_;
  proc::ProcessSet set_;
  std::optional<JobOutcome> outcome_;
  bool reported_ = false;
  bool log_error_said_ = false;
  Deadline next_log_look_ = Deadline::in(Millis(0));
  Deadline next_telling_ = Deadline::in(Millis(0));
};

}  // namespace trireme::launch
