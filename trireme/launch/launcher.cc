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
#include "trireme/launch/machine/executable.h"
#include "trireme/launch/machine/local_node.h"
#include "trireme/launch/machine/program.h"
#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/nodes/node_check.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/launch/nodes/ssh.h"
#include "trireme/launch/report/table.h"
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
    nodes[i].address = resolve_ip(seat.peers[i]);
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
  meeting.link().begin(0, [] { return std::nullopt; });
  meeting.link().report_success();
  const Deadline deadline = Deadline::in(std::chrono::seconds(10));
  while (!meeting.link().outcome() && !deadline.passed())
    for (const int fd : meeting.link().wake_fds()) wait_readable(fd, earlier(deadline, Deadline::in(Millis(100))));
  meeting.farewell();
  console.drain(Deadline::in(std::chrono::seconds(1)));
  return 0;
}

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

class Job {
 public:
  Job(const Request& request, LocalNode& self, Meeting& meeting, proc::Console& console)
      : request_(request), self_(self), meeting_(meeting), console_(console) {}

  int run(int end_of_input) {
    proc::SignalGate signals;
    result_.job_id = request_.job_id;
    result_.started = std::chrono::system_clock::now();
    claim_folder();
    forget_old_result(folder());
    for (int attempt = 0;; ++attempt) {
      JobPlan plan = make_plan(request_, meeting_.nodes(), plan_context(attempt));
      find_programs(plan);
      ranks_ = plan.world_size();
      if (attempt == 0) greet(plan);
      meeting_.link().begin(attempt, [&] { return objection(signals); });
      const AttemptResult ended = Supervisor({.request = request_,
                                              .plan = plan,
                                              .attempt = attempt,
                                              .meeting = meeting_,
                                              .ports = self_.ports,
                                              .signals = signals,
                                              .console = console_,
                                              .end_of_input = end_of_input})
                                      .run();
      result_.restarts = attempt;
      interrupted_ = interrupted_ ? interrupted_ : ended.interrupted;
      if (!worth_another(ended, attempt)) return conclude(ended);
      if (interrupted_ != 0) {
        meeting_.link().begin(attempt + 1, [&] { return objection(signals); });  // tells the others not to wait
        return conclude(ended);
      }
      show(LogLevel::error, failure_text(ended));
      log_info("restarting on every node: restart {} of {}", attempt + 1, meeting_.max_restart());
    }
  }

 private:
  // Text from the launcher itself that does not go through the log.
  void show(LogLevel level, const std::string& text) {
    if (level >= request_.log_level) console_.write(proc::Console::kLauncher, true, "", text);
  }

  void greet(const JobPlan& plan) {
    const auto local = plan.workers_of(meeting_.node());
    show(LogLevel::info, fmt::format("launch train in {} mode\n", self_.info.devices.empty() ? "CPU" : "GPU"));
    show(LogLevel::info, environment_table(*local.at(0), static_cast<int>(local.size())));
  }

  // Two jobs in one folder would mix their logs.
  void claim_folder() {
    lock_ = lock_of(folder());
    if (!lock_ || !lock_->held_by()) return;
    const std::string reason = fmt::format(
        "{}: the log folder {} is in use: {} runs a job with it; wait for it to end, or give this job another "
        "one: --log_dir FOLDER",
        self_.info.host, folder().string(), *lock_->held_by());
    meeting_.link().begin(0, [&] { return JobOutcome::abort(reason, exit_code::kUsage); });  // tells the other nodes
    meeting_.farewell();
    throw UsageError("{}", reason);
  }

  // After Ctrl-C, at whatever moment, the job is not restarted.
  std::optional<JobOutcome> objection(proc::SignalGate& signals) {
    if (const auto signal = signals.look(); signal && interrupted_ == 0) interrupted_ = *signal;
    if (interrupted_ == 0) return std::nullopt;
    return JobOutcome::of_signal(interrupted_, self_.info.host);
  }

  std::filesystem::path folder() const { return meeting_.nodes()[static_cast<size_t>(meeting_.node())].log_dir; }

  bool worth_another(const AttemptResult& ended, int attempt) const {
    return ended.outcome.kind == JobOutcome::Kind::worker_failed && attempt < meeting_.max_restart() &&
           !ended.outcome.final && !ended.unkillable;
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
    }
  }

  std::string failure_text(const AttemptResult& ended) {
    fill_result(ended);
    return failure_screen(result_, console_.colour());
  }

  // Only a program that trains with Trireme is known to need the others.
  void warn_if_each_rank_was_alone() const {
    if (ranks_ == 1 || !meeting_.hosting() || meeting_.any_rank_joined()) return;
    if (!has_training_note(request_.command.at(0))) return;
    log_error(  // also with --quiet: the job has failed in effect
        "{} processes ran side by side without init_parallel_env: each trained alone; call init_parallel_env() in "
        "main() and pass its world to DataParallel and Loader",
        ranks_);
  }

  int conclude(const AttemptResult& ended) {
    fill_result(ended);
    if (result_.outcome == Outcome::success) warn_if_each_rank_was_alone();
    if (result_.outcome != Outcome::success || ended.unkillable)
      show(LogLevel::error, failure_screen(result_, console_.colour()));
    try {
      write_file_atomically(folder() / "result.json", result_json(result_), {.durable = false});
    } catch (const SystemError& error) {
      if (!ended.log_trouble) log_error("{}", error.what());
    }
    meeting_.farewell();
    return result_.exit_code;
  }

  const Request& request_;
  LocalNode& self_;
  Meeting& meeting_;
  proc::Console& console_;
  std::optional<OwnerLock> lock_;
  JobResult result_;
  int interrupted_ = 0;
  int ranks_ = 1;  // of the whole job
};

}  // namespace

ScopedLogSink plain_log() {
  return ScopedLogSink(
      [](LogLevel level, std::string_view text) { fmt::print(stderr, "{}\n", plain_text(level, text)); });
}

int run_launch(Request request) {
  set_log_level(request.log_level);
  if (request.ssh) return run_over_ssh(request);
  request.command = resolve_program(request.command, env::get("PATH").value_or("/usr/bin:/bin"), request.no_python);
  const SshChild parent = request.ssh_child ? SshChild::from_standard_input() : SshChild{};
  const Seat seat = find_seat(request, local_interfaces());
  if (request.dry_run) return dry_run(request, seat);
  LocalNode self = describe_local_node(request, seat);
  forget_old_result(self.info.log_dir);
  proc::Console console;
  // Between the workers' lines.
  const ScopedLogSink log([&](LogLevel level, std::string_view text) { console.say(plain_text(level, text)); });
  std::optional<TerminalWatch> terminal;
  terminal.emplace(parent.end_of_input);
  const auto meeting = seat.nodes > 1 ? Meeting::with_others(request, seat, self.info, parent.token)
                                      : Meeting::alone(self.info, request.max_restart);
  terminal.reset();
  if (request.check_only) return report_nodes(*meeting, console);
  const int code = Job(request, self, *meeting, console).run(parent.end_of_input);
  console.drain(Deadline::in(std::chrono::seconds(1)));
  return code;
}

}  // namespace trireme::launch
