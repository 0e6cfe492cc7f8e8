#include "trireme/launch/launcher.h"

#include <algorithm>
#include <filesystem>

#include "trireme/core/cpu_probe.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/owner_lock.h"
#include "trireme/core/text.h"
#include "trireme/launch/clusters/cluster.h"
#include "trireme/launch/live/monitor.h"
#include "trireme/launch/live_line.h"
#include "trireme/launch/machine/executable.h"
#include "trireme/launch/machine/local_node.h"
#include "trireme/launch/machine/program.h"
#include "trireme/launch/members.h"
#include "trireme/launch/membership.h"
#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/nodes/node_check.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/launch/nodes/ssh.h"
#include "trireme/launch/report/table.h"
#include "trireme/launch/restart_delay.h"
#include "trireme/launch/signal_watch.h"
#include "trireme/launch/supervisor.h"

namespace trireme::launch {
namespace {

std::string plain_text(LogLevel level, std::string_view text) {
  const char* kind = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
  return fmt::format("trireme: {}{}", kind, text);
}

PlanContext plan_context(int restart) {
  return {.restart = restart, .amx_broken = amx_is_broken(), .inherited = env::all()};
}

// --wrap puts a program without a path in front.
void find_programs(JobPlan& plan) {
  const std::string path = env::get("PATH").value_or("/usr/bin:/bin");
  for (WorkerPlan& worker : plan.workers)
    if (worker.command.at(0).find('/') == std::string::npos)
      worker.command = resolve_program(worker.command, path, true);
}

// A dry run asks no other node: they are taken to be like this one.
int dry_run(const Request& request, const Seat& seat) {
  const LocalNode self = describe_local_node(request, seat);
  std::vector<NodeInfo> nodes(static_cast<size_t>(seat.nodes), self.info);
  for (NodeInfo& node : nodes) node.machine.clear();
  for (size_t i = 0; i < nodes.size() && i < seat.peers.size(); ++i) {
    nodes[i].host = seat.peers[i];
    nodes[i].address = seat.peer_ips[i];
    if (i < request.hosts.size() && request.hosts[i].slots > 0) nodes[i].processes = request.hosts[i].slots;
    while (nodes[i].ports.size() < static_cast<size_t>(nodes[i].processes))
      nodes[i].ports.push_back(static_cast<uint16_t>(nodes[i].ports.back() + 1));
  }
  fmt::print("{}", dry_run_text(make_plan(request, nodes, plan_context(0))));
  return 0;
}

int report_nodes(Meeting& meeting, proc::Console& console) {
  const auto pairs = measure_pairs(meeting);
  if (meeting.node() == 0)
    console.write(proc::Console::kLauncher, false, "", pairs_table(meeting.nodes(), pairs));
  else
    log_info("checked; node 0 ({}) shows the table", meeting.nodes()[0].host);
  // No node ends before all have read.
  meeting.link().begin(
      0, [](Deadline) { return std::nullopt; }, Millis(0));
  meeting.link().report_success();
  const Deadline deadline = Deadline::in(std::chrono::seconds(10));
  while (!meeting.link().outcome() && !deadline.passed())
    for (const int fd : meeting.link().wake_fds()) wait_readable(fd, earlier(deadline, Deadline::in(Millis(100))));
  meeting.farewell();
  console.drain(Deadline::in(std::chrono::seconds(1)));
  return 0;
}

constexpr Millis kToRead{2000};

// The result of an earlier job must not be taken for that of a job that is killed or never begins.
void forget_old_result(const std::filesystem::path& log_dir) {
  std::error_code ignored;
  std::filesystem::remove(log_dir / "result.json", ignored);
}

// Nothing where the folder cannot be written: the supervisor says so, and the job goes on without its logs.
std::optional<OwnerLock> lock_of(const std::filesystem::path& log_dir) try {
  std::error_code ignored;
  std::filesystem::create_directories(log_dir, ignored);
  return std::optional<OwnerLock>(std::in_place, log_dir / ".launch.lock");
} catch (const SystemError&) {
  return std::nullopt;
}

// Before the nodes meet, which may last: not that of a job that uses the folder at this moment.
void forget_result_of_ended_job(const std::filesystem::path& log_dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(log_dir / "result.json", ignored)) return;
  const std::optional<OwnerLock> lock = lock_of(log_dir);
  if (lock && !lock->held_by()) forget_old_result(log_dir);
}

class Job {
 public:
  Job(const Request& request, const Seat& seat, LocalNode& self, std::unique_ptr<Meeting> meeting,
      proc::Console& console, proc::SignalGate& signals)
      : request_(request),
        self_(self),
        members_(request, seat, self.info, std::move(meeting)),
        console_(console),
        signals_(signals),
        line_(console, request) {}

  int run(int end_of_input) {
    result_.job_id = request_.job_id;
    result_.started = std::chrono::system_clock::now();
    folder_ = meeting().nodes()[static_cast<size_t>(meeting().node())].log_dir;
    claim_folder();
    forget_old_result(folder_);
    std::error_code ignored;
    std::filesystem::remove(folder_ / "live.json", ignored);  // else `trireme top` shows the job before this one
    // Node 0 writes it; the others may share its folder.
    if (request_.trace && meeting().node() == 0) std::filesystem::remove(folder_ / "trace.json", ignored);
    for (Millis pause{0};;) {
      const auto started = Clock::now();
      AttemptResult ended = run_attempt(pause, end_of_input);
      pause = Millis(0);
      const Step step = next_step(ended.outcome, situation(ended));
      if (step == Step::end) return conclude(ended);
      if (step == Step::leave) return leave(ended);
      if (step == Step::restart) pause = announce_restart(ended, Clock::now() - started);
      if (const auto over = find_next(step, ended.outcome, end_of_input)) {
        ended.outcome = *over;
        to_read_ = kToRead;
        return interrupted_ != 0 ? leave(ended) : conclude(ended);
      }
    }
  }

 private:
  Meeting& meeting() const { return members_.meeting(); }

  std::optional<JobOutcome> find_next(Step step, const JobOutcome& why, int end_of_input) {
    const TerminalWatch terminal(end_of_input);
    return members_.find_next(step, why, {signals_, objection_, away_});
  }

  AttemptResult run_attempt(Millis pause, int end_of_input) {
    JobPlan plan = make_plan(request_, meeting().nodes(), plan_context(members_.attempt()));
    find_programs(plan);
    ranks_ = plan.world_size();
    follow_members();
    if (!greeted_) greet(plan);
    begin(pause, greeted_ ? end_of_input : -1);
    greeted_ = true;
    monitor_->set_restarts(members_.restarts());
    const AttemptResult ended = Supervisor({.request = request_,
                                            .plan = plan,
                                            .attempt = members_.attempt(),
                                            .meeting = meeting(),
                                            .node = self_,
                                            .signals = signals_,
                                            .console = console_,
                                            .end_of_input = end_of_input,
                                            .monitor = *monitor_})
                                    .run();
    interrupted_ = interrupted_ ? interrupted_ : ended.interrupted;
    return ended;
  }

  Situation situation(const AttemptResult& ended) const {
    const auto is_culprit = [&](const WorkerEnding& worker) { return worker.rank == ended.outcome.culprit->rank; };
    return {
        .rules = meeting().rules(),
        .restarts = members_.restarts(),
        .max_restart = meeting().max_restart(),
        .leaves = interrupted_ != 0 || meeting().has_left(),
        .unkillable = ended.unkillable,
        .failed_here = ended.outcome.culprit && std::any_of(ended.workers.begin(), ended.workers.end(), is_culprit)};
  }

  Millis announce_restart(const AttemptResult& ended, Clock::duration lived) {
    show(LogLevel::error, failure_text(ended));
    monitor_->show_failure(failure_screen(result_, false));
    const Millis pause = restart_delay_.next(lived);
    log_info("restarting on every node: restart {} of {}{}", members_.count_restart(), meeting().max_restart(),
             pause > Millis(0) ? fmt::format(", in {} s because it keeps failing", pause.count() / 1000) : "");
    return pause;
  }

  // On the thread of the signal watch, while the main thread looks for a lost job.
  std::string end_while_away(int signal) {
    fill_result({.outcome = JobOutcome::of_signal(signal, self_.info.host)});
    write_result();
    return "it had lost the job, and no worker runs on this node";
  }

  // This launcher was told to end, or is cut off, and the job would go on: without this node, or not at all.
  int leave(AttemptResult ended) {
    const bool goes_on = meeting().has_left();
    if (!goes_on && !(meeting().rules().on && meeting().hosting()))  // a coordinator's conclude() tells the others
      meeting().link().begin(members_.attempt() + 1, objection_, Millis(0));
    if (goes_on || ended.outcome.kind != JobOutcome::Kind::worker_failed)
      ended.outcome = interrupted_ != 0 ? JobOutcome::of_signal(interrupted_, self_.info.host)
                                        : JobOutcome::lost(ended.outcome.reason);
    if (goes_on) ended.outcome.reason += ": this node has left the job, and the others go on";
    return conclude(ended);
  }

  // Text from the launcher itself that does not go through the log.
  void show(LogLevel level, const std::string& text) {
    if (level >= request_.log_level) console_.write(proc::Console::kLauncher, true, "", text);
  }

  void greet(const JobPlan& plan) {
    const auto local = plan.workers_of(meeting().node());
    show(LogLevel::info, fmt::format("launch train in {} mode\n", self_.info.devices.empty() ? "CPU" : "GPU"));
    show(LogLevel::info, environment_table(*local.at(0), static_cast<int>(local.size())));
  }

  // Two jobs in one folder would mix their logs.
  void claim_folder() {
    lock_ = lock_of(folder_);
    if (!lock_ || !lock_->held_by()) return;
    const std::string reason = fmt::format(
        "{}: the log folder {} is in use: {} runs a job with it; wait for it to end, or give this job another "
        "one: --log_dir FOLDER",
        self_.info.host, folder_.string(), *lock_->held_by());
    call_off(reason);
    throw UsageError("{}", reason);
  }

  // Tells the other nodes why the job does not begin.
  void call_off(const std::string& reason) {
    const auto refusal = [&](Deadline) { return JobOutcome::abort(reason, exit_code::kUsage); };
    meeting().link().begin(members_.attempt(), refusal, Millis(0));
    meeting().farewell();
  }

  // Another one where this node has another number among the members of the next attempt. A page that cannot be served
  // ends the job before any worker has started. Later this node has become node 0, and the page's address may be that
  // of the node before it.
  void follow_members() {
    if (monitor_ && watched_as_ == meeting().node()) return;
    monitor_.reset();
    watched_as_ = meeting().node();
    try {
      start_monitor(request_.dashboard);
    } catch (const Error& error) {
      if (!greeted_) {
        call_off(fmt::format("{}: no dashboard: {}", self_.info.host, error.what()));
        throw;
      }
      log_warning("the job goes on without a dashboard: {}", error.what());
      start_monitor(std::nullopt);
    }
  }

  void start_monitor(const std::optional<Endpoint>& page) {
    Monitor::Options options{.job_id = request_.job_id,
                             .program = join(request_.command, " "),
                             .host = self_.info.host,
                             .log_dir = folder_.string(),
                             .node = meeting().node(),
                             .timelines = page.has_value(),
                             .trace = request_.trace,
                             .on_look = [this](const JobView& job) { line_.show(job); }};
    if (page && meeting().node() == 0)
      options.dashboard = {.address = *page, .needs_token = !is_loopback_host(page->host)};
    const bool secret = options.dashboard && options.dashboard->needs_token;
    monitor_.emplace(std::move(options));
    if (const std::string url = monitor_->url(); !url.empty())
      log_info("dashboard: {}{}", url,
               secret ? fmt::format(" (with its token in {})", (folder_ / "dashboard.url").string()) : "");
  }

  void begin(Millis pause, int end_of_input) {
    const TerminalWatch terminal(end_of_input);  // its signals become this process' own
    meeting().link().begin(members_.attempt(), objection_, pause);
  }

  // After Ctrl-C, at whatever moment, the job is not restarted.
  std::optional<JobOutcome> objection(Deadline deadline) {
    while (const auto signal = signals_.look(interrupted_ ? Deadline::in(Millis(0)) : deadline)) {
      if (*signal == SIGTSTP)
        proc::stop_this_process();
      else if (!proc::asks_to_end(*signal))
        log_info("{}: not passed on, because no worker runs at this moment", signal_name(*signal));
      else if (interrupted_ == 0)
        interrupted_ = *signal;
    }
    if (interrupted_ == 0) return std::nullopt;
    return meeting().outcome_of_signal(interrupted_);
  }

  void fill_result(const AttemptResult& ended) {
    const JobOutcome& outcome = ended.outcome;
    result_.ended = std::chrono::system_clock::now();
    result_.exit_code = outcome.exit_code;
    if (ended.unkillable && !outcome.culprit) result_.exit_code = exit_code::kUnkillable;
    result_.outcome = outcome.kind == JobOutcome::Kind::success       ? Outcome::success
                      : outcome.kind == JobOutcome::Kind::interrupted ? Outcome::interrupted
                                                                      : Outcome::failure;
    result_.reason = outcome.reason;
    if (outcome.signal != 0) result_.stop_signal = outcome.signal;
    result_.restarts = members_.restarts();
    result_.memberships = members_.by_attempt();
    result_.workers = ended.workers;
    result_.culprit.reset();
    if (!outcome.culprit) return;
    result_.culprit = outcome.culprit->rank;
    const auto local = std::find_if(result_.workers.begin(), result_.workers.end(),
                                    [&](const WorkerEnding& w) { return w.rank == outcome.culprit->rank; });
    if (local == result_.workers.end()) {
      result_.workers.push_back(*outcome.culprit);
    } else {
      local->awaited_by = outcome.culprit->awaited_by;
      local->awaited_in = outcome.culprit->awaited_in;
      local->hang = outcome.culprit->hang;
      local->hang_advice = outcome.culprit->hang_advice;
      local->hang_details = outcome.culprit->hang_details;
    }
  }

  std::string failure_text(const AttemptResult& ended) {
    fill_result(ended);
    return failure_screen(result_, console_.colour());
  }

  // Only a program that trains with Trireme is known to need the others.
  void warn_if_each_rank_was_alone() const {
    if (ranks_ == 1 || !meeting().hosting() || meeting().any_rank_joined()) return;
    if (!has_training_note(request_.command.at(0))) return;
    log_error(  // also with --quiet: the job has failed in effect
        "{} processes ran side by side without init_parallel_env: each trained alone; call init_parallel_env() in "
        "main() and pass its world to DataParallel and Loader",
        ranks_);
  }

  int conclude(const AttemptResult& ended) {
    line_.end();
    fill_result(ended);
    if (ended.outcome.final && ended.outcome.culprit && members_.restarts() < meeting().max_restart())
      log_info("not restarted: exit code {} means that the program cannot be run", ended.outcome.exit_code);
    if (result_.outcome == Outcome::success && members_.there()) warn_if_each_rank_was_alone();
    if (result_.outcome != Outcome::success || ended.unkillable)
      show(LogLevel::error, failure_screen(result_, console_.colour()));
    write_result();
    const bool good = result_.outcome == Outcome::success;
    monitor_->finish(word_of(result_.outcome), result_.exit_code, good ? "" : failure_screen(result_, false));
    if (!members_.there()) return result_.exit_code;
    meeting().close(ended.outcome, Deadline::in(to_read_));
    meeting().farewell();
    return result_.exit_code;
  }

  void write_result() const try {
    write_file_atomically(folder_ / "result.json", result_json(result_), {.durable = false});
  } catch (const SystemError& error) {
    log_error("there is no result.json of this job: {}", error.what());
  }

  const Request& request_;
  LocalNode& self_;
  Members members_;
  proc::Console& console_;
  proc::SignalGate& signals_;
  std::optional<OwnerLock> lock_;
  LiveLine line_;  // the monitor's thread shows it
  std::optional<Monitor> monitor_;
  int watched_as_ = 0;  // the number of this node that the monitor knows
  JobResult result_;
  RestartDelay restart_delay_;
  int interrupted_ = 0;
  int ranks_ = 1;  // of the whole job
  bool greeted_ = false;
  Millis to_read_{0};  // for nodes that wait for the next attempt: that the job is over
  std::filesystem::path folder_;
  const JobLink::Objection objection_ = [this](Deadline deadline) { return objection(deadline); };
  const SignalWatch::BeforeEnd away_ = [this](int signal) { return end_while_away(signal); };
};

}  // namespace

ScopedLogSink plain_log() {
  return ScopedLogSink(
      [](LogLevel level, std::string_view text) { fmt::print(stderr, "{}\n", plain_text(level, text)); });
}

int run_launch(Request request) {
  set_log_level(request.log_level);
  if (request.ssh) return run_over_ssh(request);
  // Never taken down: a signal while this process ends must not change the exit code that was decided.
  static auto& signals = *new proc::SignalGate(launcher_signals());
  std::optional<SignalWatch> watch(std::in_place, signals);
  request.command = resolve_program(request.command, env::get("PATH").value_or("/usr/bin:/bin"), request.no_python);
  const SshChild parent = request.ssh_child ? SshChild::from_standard_input() : SshChild{};
  if (request.master) request.master->host = cluster_address(request.master->host, env::all());
  const Seat seat = find_seat(request, local_interfaces());
  if (request.dry_run) return dry_run(request, seat);
  LocalNode self = describe_local_node(request, seat);
  if (!request.check_only) forget_result_of_ended_job(self.info.log_dir);
  proc::Console console;
  // Between the workers' lines.
  const ScopedLogSink log([&](LogLevel level, std::string_view text) { console.say(plain_text(level, text)); });
  std::optional<TerminalWatch> terminal;
  terminal.emplace(parent.end_of_input);
  auto meeting = seat.nodes > 1 ? Meeting::with_others(request, seat, self.info, parent.token)
                                : Meeting::alone(self.info, request.max_restart);
  terminal.reset();
  if (request.check_only) return report_nodes(*meeting, console);
  watch.reset();
  const int code = Job(request, seat, self, std::move(meeting), console, signals).run(parent.end_of_input);
  console.drain(Deadline::in(std::chrono::seconds(1)));
  return code;
}

}  // namespace trireme::launch
