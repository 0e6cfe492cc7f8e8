#include "trireme/launch/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/machine/affinity.h"
#include "trireme/launch/worker_environment.h"
#include "trireme/launch/worker_process.h"

namespace trireme::launch {
namespace {

constexpr Millis kHeldLineTime{200};  // an unfinished line is shown after this
constexpr Millis kSlowConsole{20};
constexpr Millis kIdle{1000};
constexpr Millis kAskAgain{50};  // whether a rank that a worker waited for has ended on another node

size_t log_limit() {
  constexpr int64_t kDefaultMegabytes = 256;
  const auto text = env::get_nonempty("TRIREME_LOG_MAX_MB");
  const auto megabytes = text ? parse_int(*text, 0, 1 << 20) : kDefaultMegabytes;
  if (!megabytes) throw UsageError("TRIREME_LOG_MAX_MB={}: must be a number of MiB from 0 to {}", *text, 1 << 20);
  return static_cast<size_t>(*megabytes) << 20;
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
      state_(static_cast<int>(context.plan.workers_of(context.meeting.node()).size()),
             {.grace = context.request.grace, .whole_job = context.plan.nodes.size() == 1}),
      early_ends_(context.meeting.keys(), context.attempt),
      token_file_(make_memory_file("trireme-token", context.meeting.token().bytes())) {
  set_.adopt_orphans();
  for (const int fd : context_.meeting.link().wake_fds()) set_.watch(fd);
  if (context_.end_of_input >= 0) set_.watch(context_.end_of_input);
}

Supervisor::~Supervisor() = default;

AttemptResult Supervisor::run() {
  outcome_ = context_.meeting.link().outcome();
  if (outcome_) return {.outcome = *outcome_};  // called off before it began
  start_workers();
  while (!over()) turn();
  flush_held_lines(true);
  context_.console.flush();
  AttemptResult result{.outcome = *outcome_, .interrupted = state_.interrupted(), .log_trouble = log_error_said_};
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
                                  .listen_fd = context_.ports.socket(worker.plan.local_rank)};
  VariableMap variables = worker_variables(worker.plan, resources);
  // Paddle insists on reading the file when it is named.
  if (!worker.has_backup) variables.erase("PADDLE_BACKUP_ENV_PATH");
  proc::ProcessSpec spec = worker_process(worker.plan, resources, variables);
  spec.cpus = cpus;
  spec.interactive = gets_terminal(worker.plan);
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
      folder / fmt::format("workerlog.{}", worker.plan.local_rank),
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
  while (const auto signal = context_.signals.take()) interrupt(*signal);
  flush_held_lines(false);
  consult_link();
  send_due_signals();
  context_.console.flush();
}

void Supervisor::send_due_signals() {
  while (const auto signal = state_.signal_due(Clock::now())) set_.signal_all(*signal);
}

Deadline Supervisor::next_look() const {
  Deadline next = earlier(state_.next(), Deadline::in(kIdle));
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

void Supervisor::handle_exit(Worker& worker, const proc::Event& event) {
  worker.pid = event.pid;
  const bool unexplained_kill = event.status.signal == SIGKILL && !state_.stopping();
  worker.ending = to_ending(event);
  worker.ending->out_of_memory_kill = unexplained_kill && memory_.killed(worker.pid);
  worker.ended = event.when;
  if (gets_terminal(worker.plan)) proc::reclaim_terminal();
  note_end(worker);
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
  const bool blames = early_ends_.gave_up(worker.plan.rank, *worker.ending);
  const auto early = blames ? early_ends_.culprit_of(worker.plan.rank) : std::nullopt;
  return early ? *early : ending_of(worker);
}

// --- reasons to stop

void Supervisor::interrupt(int signal) {
  if (!state_.interrupt(signal, Clock::now())) return;
  log_info("{}: passed on to the workers, which have {:g} s to end; a second signal kills them", signal_name(signal),
           std::chrono::duration<double>(context_.request.grace).count());
  send_due_signals();
  context_.meeting.link().report(JobOutcome::of_signal(signal, host_name()));
}

// The terminal of --ssh sends a byte for a signal; its end means that the terminal is gone.
void Supervisor::handle_terminal() {
  char byte = 0;
  const bool gone = ::read(context_.end_of_input, &byte, 1) <= 0;
  if (gone) set_.unwatch(context_.end_of_input);
  if (!gone || !state_.stopping()) interrupt(byte == 'I' ? SIGINT : SIGTERM);
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
  if (outcome_ && outcome_->kind != JobOutcome::Kind::success) state_.stop(SIGTERM, Clock::now());
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

}  // namespace trireme::launch
