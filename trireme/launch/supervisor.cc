#include "trireme/launch/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/live_line.h"
#include "trireme/launch/machine/affinity.h"
#include "trireme/launch/nodes/node_check.h"
#include "trireme/launch/nodes/ssh.h"
#include "trireme/launch/worker_environment.h"
#include "trireme/launch/worker_process.h"

namespace trireme::launch {
namespace {

constexpr Millis kHeldLineTime{200};  // an unfinished line is shown after this
constexpr Millis kSlowConsole{20};
constexpr Millis kIdle{1000};
constexpr Millis kProbePatience{2000};  // with one try of a link; a job that ends waits for it
constexpr Millis kLogLook{1000};
constexpr Millis kToReportLoss{2000};
constexpr Millis kTellMonitor{500};
constexpr Millis kAskAgain{50};  // whether a rank that a worker waited for has ended on another node

size_t log_limit() {
  constexpr int64_t kDefaultMegabytes = 256;
  const auto text = env::get_nonempty("TRIREME_LOG_MAX_MB");
  const auto megabytes = text ? parse_int(*text, 0, 1 << 20) : kDefaultMegabytes;
  if (!megabytes) throw UsageError("TRIREME_LOG_MAX_MB={}: must be a number of MiB from 0 to {}", *text, 1 << 20);
  return static_cast<size_t>(*megabytes) << 20;
}

// Null with --hang_timeout 0 and no other reader of the rings.
std::shared_ptr<const RankRings> rings_for(const SupervisorContext& context) {
  const Request& request = context.request;
  const bool shows = request.dashboard || request.trace || LiveLine::is_wanted(request, context.console.on_terminal());
  if (request.hang_timeout.count() == 0 && !shows) return nullptr;
  std::vector<int> ranks;
  for (const WorkerPlan* plan : context.plan.workers_of(context.meeting.node())) ranks.push_back(plan->rank);
  return RankRings::make(ranks);
}

HangWatch::Options hang_options(const SupervisorContext& context, std::shared_ptr<const RankRings> rings) {
  HangWatch::Options options{.timeout = context.request.hang_timeout, .rings = std::move(rings)};
  options.world_size = context.plan.world_size();
  if (const auto text = users_setting(context.request, env::all(), "PADDLE_PG_TIMEOUT"))
    if (const auto time = parse_int(*text, 1, std::numeric_limits<int>::max())) options.group_timeout = Millis(*time);
  if (context.plan.nodes.size() == 1) return options;
  options.link_timeout = context.request.link_timeout;
  options.others = {.store = context.meeting.keys(), .attempt = context.attempt, .node = context.meeting.node()};
  return options;
}

std::string log_of(const NodeInfo& node, const WorkerPlan& worker) {
  return std::filesystem::path(node.log_dir) / fmt::format("workerlog.{}", worker.local_rank);
}

std::unique_ptr<LinkProbe> probe_of_links(const SupervisorContext& context) {
  if (context.plan.nodes.size() == 1 || context.request.hang_timeout.count() == 0) return nullptr;
  return std::make_unique<LinkProbe>([probes = context.meeting.probes(), token = context.meeting.token(),
                                      patience = std::min(context.request.link_timeout / 2, kProbePatience)](int node) {
    return reach_node(node, probes.at(static_cast<size_t>(node)), token, ReachTest::ping, patience).error;
  });
}

// In an elastic job a worker that lost a peer may have lost a node: the launchers notice that within the link timeout.
JobState::Timing timing_of(const SupervisorContext& context) {
  JobState::Timing timing{.grace = context.request.grace, .whole_job = context.plan.nodes.size() == 1};
  if (context.meeting.rules().on && !timing.whole_job)
    timing.victim_settle = timing.gave_up_settle = context.request.link_timeout + kToReportLoss;
  return timing;
}

}  // namespace

struct Supervisor::Worker {
  explicit Worker(const WorkerPlan& p) : plan(p) {}
  const WorkerPlan& plan;
  int process = -1;
  int pid = 0;
  bool has_backup = false;  // of its environment, as a file
  bool shown = false;       // on the console
  std::string prefix;       // there
  std::unique_ptr<proc::LogFile> log;
  proc::LineJoiner log_lines;
  proc::LineCutter cutters[2];  // by Stream
  proc::Tail tail{200};         // the diagnosis looks further back than the screen shows
  std::optional<Ending> ending;
  bool unconfirmed = false;  // it gave up waiting, and whether a rank that it waited for has ended is not known
  Clock::time_point started;
  Clock::time_point ended;
};

Supervisor::Supervisor(const SupervisorContext& context)
    : context_(context),
      state_(static_cast<int>(context.plan.workers_of(context.meeting.node()).size()), timing_of(context)),
      early_ends_(context.meeting.keys(), context.attempt),
      token_file_(make_memory_file("trireme-token", context.meeting.token().bytes())),
      rings_(rings_for(context)),
      hangs_(hang_options(context, rings_)),
      links_(probe_of_links(context)) {
  set_.adopt_orphans();
  for (const int fd : context_.meeting.link().wake_fds()) set_.watch(fd);
  if (context_.end_of_input >= 0) set_.watch(context_.end_of_input);
}

Supervisor::~Supervisor() = default;

AttemptResult Supervisor::run() {
  outcome_ = context_.meeting.link().outcome();
  if (outcome_) return {.outcome = *outcome_};  // called off before it began
  begin_monitor();
  start_workers();
  while (!over()) turn();
  tell_monitor(true);
  const bool complete = outcome_->kind != JobOutcome::Kind::node_lost;
  context_.monitor.end_attempt(complete ? Monitor::kNodeReportTime : Millis(0));
  flush_held_lines(true);
  context_.console.flush();
  AttemptResult result{.outcome = *outcome_, .interrupted = state_.interrupted()};
  for (const auto& worker : workers_) {
    result.workers.push_back(ending_of(*worker));
    result.unkillable |= result.workers.back().unkillable;
  }
  return result;
}

// --- starting

void Supervisor::start_workers() {
  const auto plans = context_.plan.workers_of(context_.meeting.node());
  const bool bound = context_.request.bind != Bind::none;
  const auto cpus =
      share_cores(context_.request.bind, bound ? machine_topology() : Topology{}, static_cast<int>(plans.size()));
  for (size_t i = 0; i < plans.size(); ++i) {
    workers_.push_back(std::make_unique<Worker>(*plans[i]));
    Worker& worker = *workers_.back();
    const auto& tee = context_.request.tee;
    worker.shown = context_.request.tee_all || std::find(tee.begin(), tee.end(), worker.plan.local_rank) != tee.end();
    if (worker.plan.local_rank != 0) worker.prefix = fmt::format("{}:{} ", this_node().host, worker.plan.rank);
    open_log(worker);
    write_backup_environment(worker);
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    workers_[i]->process = set_.start(spec_of(*workers_[i], cpus[i]));
    workers_[i]->started = Clock::now();
  }
}

proc::ProcessSpec Supervisor::spec_of(const Worker& worker, const std::vector<int>& cpus) const {
  const WorkerResources resources{.store = context_.meeting.store(),
                                  .token_fd = token_file_.get(),
                                  .listen_fd = context_.node.ports.socket(worker.plan.local_rank),
                                  .watch_fd = rings_ ? rings_->fd(static_cast<size_t>(worker.plan.local_rank)) : -1};
  VariableMap variables = worker_variables(worker.plan, resources);
  // Paddle insists on reading the file when it is named.
  if (!worker.has_backup) variables.erase("PADDLE_BACKUP_ENV_PATH");
  proc::ProcessSpec spec = worker_process(worker.plan, resources, variables);
  spec.cpus = cpus;
  spec.interactive = gets_terminal(worker.plan);
  spec.grace = context_.request.grace;
  spec.open_files = context_.node.usual_open_files;
  return spec;
}

// A debugger around one rank is of use only with the keyboard.
bool Supervisor::gets_terminal(const WorkerPlan& plan) const {
  const auto& wrap = context_.request.wrap;
  return wrap.size() == 1 && wrap.contains(plan.rank) && ::isatty(0) == 1 && ::isatty(1) == 1;
}

void Supervisor::open_log(Worker& worker) {
  const std::filesystem::path folder = this_node().log_dir;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) say_log_error(fmt::format("cannot make the log folder {}: {}", folder.string(), error.message()));
  worker.log = std::make_unique<proc::LogFile>(
      log_of(this_node(), worker.plan),
      proc::LogFile::Options{.max_bytes = log_limit(),
                             .overwrite = context_.request.log_overwrite && context_.attempt == 0});
  say_log_error(worker.log->error());
}

void Supervisor::write_backup_environment(Worker& worker) {
  try {
    write_file_atomically(value_of(worker.plan.environment, "PADDLE_BACKUP_ENV_PATH").value(),
                          backup_env_json(worker.plan), {.durable = false});
    worker.has_backup = true;
  } catch (const SystemError&) {
    // The log files in the same folder have said so already.
  }
}

// --- one turn of the loop

void Supervisor::turn() {
  for (proc::Event& event : set_.wait(next_look(), context_.signals.open())) handle(event);
  while (const auto signal = context_.signals.take()) handle_signal(*signal);
  flush_held_lines(false);
  look_after_logs();
  look_for_hangs();
  tell_monitor(false);
  consult_link();
  send_due_signals();
  context_.console.flush();
}

void Supervisor::send_due_signals() {
  while (const auto signal = state_.signal_due(Clock::now())) set_.signal_all(*signal);
}

Deadline Supervisor::next_look() const {
  Deadline next = earlier(state_.next(), Deadline::in(kIdle));
  if (!state_.stopping()) next = earlier(next, hangs_.next());  // else it is not asked, and would always be due
  for (const auto& worker : workers_)
    for (const proc::LineCutter& cutter : worker->cutters)
      if (cutter.holds_something()) next = earlier(next, Deadline::at(cutter.held_since() + kHeldLineTime));
  for (const auto& worker : workers_)
    if (worker->unconfirmed && !reported_) next = earlier(next, Deadline::in(kAskAgain));
  if (!context_.console.flush()) next = earlier(next, Deadline::in(kSlowConsole));
  return next;
}

bool Supervisor::over() const {
  return outcome_ && (state_.all_finished() || state_.given_up(Clock::now()));
}

void Supervisor::handle(proc::Event& event) {
  if (event.kind == proc::Event::Kind::wakeup) {
    if (event.process == context_.end_of_input) handle_terminal();
    return;  // the link is asked in every turn
  }
  Worker& worker = *workers_.at(static_cast<size_t>(event.process));
  if (event.kind == proc::Event::Kind::output)
    emit(worker, event.stream, worker.cutters[static_cast<int>(event.stream)].feed(event.bytes));
  else if (event.kind == proc::Event::Kind::exited)
    handle_exit(worker, event);
  else
    state_.finished(event.process);
}

void Supervisor::emit(Worker& worker, proc::Stream stream, const std::string& text) {
  if (text.empty()) return;
  worker.tail.add(text);
  worker.log->write(worker.log_lines.add(static_cast<int>(stream), "", text));
  say_log_error(worker.log->error());
  const bool to_stderr = stream == proc::Stream::err;
  if (worker.shown) context_.console.write(worker.plan.rank * 2 + (to_stderr ? 1 : 0), to_stderr, worker.prefix, text);
}

void Supervisor::flush_held_lines(bool all) {
  const auto now = Clock::now();
  for (const auto& worker : workers_) {
    for (const proc::Stream stream : {proc::Stream::out, proc::Stream::err}) {
      proc::LineCutter& cutter = worker->cutters[static_cast<int>(stream)];
      if (cutter.holds_something() && (all || now >= cutter.held_since() + kHeldLineTime))
        emit(*worker, stream, cutter.flush());
    }
  }
}

void Supervisor::say_log_error(const std::optional<std::string>& problem) {
  if (!problem || log_error_said_) return;
  log_error_said_ = true;
  log_error("{}; the job goes on, but its output is not kept", *problem);
}

// Somebody cleans up, or rotates the files: what comes from now on must not go into files without a name.
void Supervisor::look_after_logs() {
  if (!next_log_look_.passed()) return;
  next_log_look_ = Deadline::in(kLogLook);
  bool gone = false;
  for (const auto& worker : workers_) {
    gone |= worker->log->reopen_if_gone();
    say_log_error(worker->log->error());
  }
  if (gone)
    log_error("log files in {} were removed or renamed while the job runs; new ones were begun", this_node().log_dir);
}

void Supervisor::handle_exit(Worker& worker, const proc::Event& event) {
  worker.pid = event.pid;
  const bool unexplained_kill = event.status.signal == SIGKILL && !state_.stopping();
  worker.ending = to_ending(event);
  worker.ending->out_of_memory_kill = unexplained_kill && memory_.killed(worker.pid);
  worker.ended = event.when;
  if (gets_terminal(worker.plan)) proc::reclaim_terminal();
  note_end(worker);
  next_telling_ = Deadline::in(Millis(0));
  const bool victim = !worker.ending->success() && diagnose(*worker.ending, worker.tail.lines()).victim;
  state_.exited(event.process, {.success = worker.ending->success(),
                                .victim = victim || worker.unconfirmed,
                                .gave_up = worker.unconfirmed,
                                .when = event.when});
}

// Ranks that wait for this one must know that it has ended; a rank that fails may have waited itself.
void Supervisor::note_end(Worker& worker) {
  if (context_.plan.world_size() == 1 || state_.stopping()) return;
  if (worker.ending->success())
    early_ends_.note(ending_of(worker));
  else
    worker.unconfirmed = early_ends_.gave_up(worker.plan.rank, *worker.ending);
}

void Supervisor::confirm_early_ends() {
  for (const auto& worker : workers_) {
    if (!worker->unconfirmed || !early_ends_.culprit_of(worker->plan.rank)) continue;
    worker->unconfirmed = false;
    state_.confirm(worker->process);
  }
}

WorkerEnding Supervisor::culprit_behind(const Worker& worker) {
  const int rank = worker.plan.rank;
  if (!early_ends_.gave_up(rank, *worker.ending)) return ending_of(worker);
  if (const auto early = early_ends_.culprit_of(rank)) return *early;
  const auto verdict = hangs_.blame_for(rank, worker.ended);
  return verdict ? late_rank(rank, *verdict) : ending_of(worker);
}

WorkerEnding Supervisor::late_rank(int victim, const watch::Verdict& verdict) {
  WorkerEnding culprit = ending_of_rank(*verdict.culprit);
  early_ends_.add_waits(victim, culprit);
  if (culprit.awaited_by.empty()) culprit.awaited_by = {victim};  // it waited for another, which waits for the culprit
  blame(culprit, fmt::format("{}; {} gave up", verdict.fault, ranks_words(culprit.awaited_by)),
        "If it is only slow, a longer PADDLE_PG_TIMEOUT lets the others wait; a --hang_timeout below that shows its "
        "stack before they give up.",
        verdict.details);
  return culprit;
}

// --- reasons to stop

void Supervisor::handle_signal(int signal) {
  if (proc::asks_to_end(signal)) return interrupt(signal);
  if (signal != SIGTSTP) return pass_on(signal);
  pass_on(SIGSTOP);
  context_.console.show_status("");  // the shell's prompt comes there
  context_.console.flush();
  proc::stop_this_process();
  pass_on(SIGCONT);
}

// What it means is the program's business: SIGUSR1 announces a preemption to one, and ends another.
void Supervisor::pass_on(int signal) {
  set_.signal_all(signal);
  const int workers = set_.running();
  log_info("{}: passed on to {} worker{}", signal_name(signal), workers, workers == 1 ? "" : "s");
}

void Supervisor::interrupt(int signal) {
  if (!state_.interrupt(signal, Clock::now())) return;
  log_info("{}: passed on to the workers, which have {:g} s to end; a second signal kills them", signal_name(signal),
           std::chrono::duration<double>(context_.request.grace).count());
  const JobOutcome outcome = context_.meeting.outcome_of_signal(signal);
  const bool leaves = outcome.kind == JobOutcome::Kind::node_left;
  if (leaves) context_.meeting.link().report(outcome);  // before the workers end: the others must know why
  send_due_signals();
  if (!leaves) context_.meeting.link().report(outcome);
}

// The terminal of --ssh sends a byte for a signal; its end means that the terminal is gone.
void Supervisor::handle_terminal() {
  char byte = 0;
  const bool gone = ::read(context_.end_of_input, &byte, 1) <= 0;
  if (gone) set_.unwatch(context_.end_of_input);
  if (gone && state_.stopping()) return;
  const int signal = gone ? SIGTERM : signal_of_byte(byte);
  if (proc::asks_to_end(signal))
    interrupt(signal);
  else
    pass_on(signal);  // SIGSTOP too: the terminal stops itself, this launcher must go on listening to it
}

void Supervisor::look_for_hangs() {
  if (state_.stopping() && hangs_.release()) set_.signal_all(SIGCONT);
  if (!hangs_.on() || state_.stopping()) return;  // a node whose ranks have ended still tells the others so
  std::vector<WatchedWorker> watched;
  for (const auto& worker : workers_)
    watched.push_back({.pid = worker->ending ? 0 : set_.pid(worker->process),
                       .ended = worker->ending.has_value(),
                       .succeeded = worker->ending && worker->ending->success()});
  hangs_.look(watched, Clock::now());
  end_hanging_job();
  if (links_ && !reported_) look_at_links();
}

// Both nodes of a cut link see it. In an elastic job one of them leaves: the one with the larger number, or, where it
// does not see the cut, the other.
void Supervisor::look_at_links() {
  const int self = context_.meeting.node(), nodes = static_cast<int>(context_.plan.nodes.size());
  std::vector<int> others = hangs_.nodes_to_try(Clock::now());
  std::erase_if(others, [&](int node) { return node >= nodes || !should_try(self, node, nodes); });
  links_->try_nodes(std::move(others));
  const Millis timeout = context_.request.link_timeout;
  auto cut = links_->cut(timeout);
  const bool other_leaves = context_.meeting.rules().on && cut && cut->node > self;
  if (other_leaves) cut = links_->cut(2 * timeout);
  if (!cut) return;
  reported_ = true;
  context_.meeting.link().report(context_.meeting.outcome_of_cut(cut->node, cut->why));
}

void Supervisor::begin_monitor() {
  Monitor::Attempt attempt{.number = context_.attempt, .rings = rings_};
  if (context_.plan.nodes.size() > 1) attempt.store = context_.meeting.keys();
  for (const WorkerPlan& plan : context_.plan.workers) {
    const NodeInfo& node = context_.plan.nodes[static_cast<size_t>(plan.node)];
    attempt.world.push_back({plan.rank, plan.node, node.host, plan.device, log_of(node, plan)});
  }
  context_.monitor.begin(std::move(attempt));
}

void Supervisor::tell_monitor(bool now) {
  if (!now && !next_telling_.passed()) return;
  next_telling_ = Deadline::in(kTellMonitor);
  std::vector<WorkerState> states;
  for (const auto& worker : workers_) {
    WorkerState state{.pid = worker->ending ? 0 : set_.pid(worker->process), .ended = worker->ending.has_value()};
    if (worker->ending) {
      const bool stopped = state_.was_stopped(worker->process);
      state.failed = !worker->ending->success() && !stopped;
      state.words = state.failed ? diagnose(ending_of(*worker)).words : stopped ? "stopped by the launcher" : "ended";
    }
    states.push_back(std::move(state));
  }
  context_.monitor.update(std::move(states), hangs_.verdict());
}

void Supervisor::end_hanging_job() {
  const auto hang = hangs_.take_proven();
  if (!hang) return;
  reported_ = true;
  flush_held_lines(true);
  WorkerEnding culprit = ending_of(*workers_[hang->worker]);
  blame(culprit, hang->fault, hang->advice, hang->details);
  state_.stop(SIGTERM, Clock::now());
  send_due_signals();
  set_.signal_all(SIGCONT);  // a stopped worker does not get SIGTERM before it goes on
  context_.meeting.link().report(JobOutcome::of_culprit(culprit));
}

void Supervisor::consult_link() {
  if (!reported_) confirm_early_ends();
  if (!reported_ && state_.all_succeeded()) {
    reported_ = true;
    context_.meeting.link().report_success();
  } else if (const auto culprit = state_.culprit(Clock::now()); culprit && !reported_) {
    reported_ = true;
    flush_held_lines(true);
    state_.stop(SIGTERM, Clock::now());
    send_due_signals();  // before the report, which may have to wait for a slow network
    context_.meeting.link().report(JobOutcome::of_culprit(culprit_behind(*workers_[static_cast<size_t>(*culprit)])));
  }
  if (!outcome_) outcome_ = context_.meeting.link().outcome();
  if (!outcome_ || outcome_->kind == JobOutcome::Kind::success) return;
  if (outcome_->at_once)
    state_.kill(Clock::now());
  else
    state_.stop(SIGTERM, Clock::now());
}

WorkerEnding Supervisor::ending_of(const Worker& worker) const {
  WorkerEnding ending{.rank = worker.plan.rank, .local_rank = worker.plan.local_rank};
  ending.host = this_node().host;
  ending.pid = worker.ending ? worker.pid : set_.pid(worker.process);
  ending.unkillable = !worker.ending.has_value();
  if (worker.ending) ending.ending = *worker.ending;
  ending.log = worker.log->path().string();
  ending.last_lines = worker.tail.lines();
  ending.stopped = state_.was_stopped(worker.process);
  const auto end = worker.ending ? worker.ended : Clock::now();
  ending.seconds = std::chrono::duration<double>(end - worker.started).count();
  return ending;
}

// Of a rank of another node only what the plan says.
WorkerEnding Supervisor::ending_of_rank(int rank) const {
  for (const auto& worker : workers_)
    if (worker->plan.rank == rank) return ending_of(*worker);
  if (rank >= context_.plan.world_size()) return {.rank = rank};  // a worker may have written any number
  const WorkerPlan& plan = context_.plan.workers[static_cast<size_t>(rank)];
  const NodeInfo& node = context_.plan.nodes[static_cast<size_t>(plan.node)];
  return {.rank = rank, .local_rank = plan.local_rank, .host = node.host, .log = log_of(node, plan)};
}

}  // namespace trireme::launch
