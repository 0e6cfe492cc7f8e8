#include "trireme/launch/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>

#include "trireme/core/cpu_probe.h"
#include "trireme/core/env.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/text.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/launch/early_ends.h"
#include "trireme/launch/job_state.h"
#include "trireme/launch/machine/devices.h"
#include "trireme/launch/machine/local_node.h"
#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/plan.h"
#include "trireme/launch/report/diagnosis.h"
#include "trireme/launch/worker_process.h"
#include "trireme/proc/console.h"
#include "trireme/proc/process_set.h"

namespace trireme {
namespace {

using namespace launch;

std::atomic<int> g_calls{0};
bool g_inside_function = false;
// main() may change the folder before it calls spawn; the copies must begin where this process began.
const std::string g_first_folder = [] {
  std::error_code ignored;
  return std::filesystem::current_path(ignored).string();
}();

// Programs cut their arguments in place, and the kernel shows them cut.
const std::vector<std::string> g_first_words = [] {
  std::string words = read_file("/proc/self/cmdline").value_or("");
  if (words.ends_with('\0')) words.pop_back();
  return split(words, '\0');
}();

// Standard input before main() reads from it, where it is a file: a copy's main() must read the same bytes.
struct FirstInput {
  dev_t device = 0;
  ino_t file = 0;
  off_t position = -1;  // -1: a terminal, a pipe, nothing at all
};

FirstInput standard_input() {
  struct stat status {};
  if (::fstat(0, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return {status.st_dev, status.st_ino, ::lseek(0, 0, SEEK_CUR)};
}

const FirstInput g_first_input = standard_input();

// For one copy: a position is shared by all that inherit a descriptor, so each gets a descriptor of its own. Invalid
// where nothing can be read twice.
UniqueFd first_input() {
  const FirstInput now = standard_input();
  if (g_first_input.position < 0 || now.device != g_first_input.device || now.file != g_first_input.file) return {};
  UniqueFd input(::open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC));
  if (input && ::lseek(input.get(), g_first_input.position, SEEK_SET) < 0) input.reset();
  return input;
}

// --- the child's side

// What a child writes into its pipe: this when main() has reached the call, then the text of an exception.
constexpr char kReached = '\x06';
constexpr size_t kMaxText = 8192;

// What a parent tells its children in TRIREME_SPAWN, "call:error descriptor:nonce". The nonce, printed on a line of its
// own, tells the parent that main() has reached the call and that output counts from here.
struct Ticket {
  int call = 0;
  int error_fd = -1;
  std::string nonce;
};

// Taken out of the environment before main(): programs that this one starts are not spawn's children.
const std::optional<std::string> g_ticket = [] {
  auto text = env::get_nonempty("TRIREME_SPAWN");
  env::set("TRIREME_SPAWN", std::nullopt);
  return text;
}();

std::optional<Ticket> own_ticket() {
  const auto& text = g_ticket;
  if (!text) return std::nullopt;
  const auto parts = split(*text, ':');
  if (parts.size() != 3) throw UsageError("TRIREME_SPAWN=\"{}\" is not one of spawn()'s own; unset it", *text);
  return Ticket{static_cast<int>(parse_int(parts[0], 1, INT32_MAX).value_or(0)),
                static_cast<int>(parse_int(parts[1], 3, INT32_MAX).value_or(-1)), parts[2]};
}

void flush_everything() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

// The program may have closed it and opened something of its own under its number.
bool is_pipe(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

[[noreturn]] void run_as_child(const Ticket& ticket, const std::function<void()>& function) {
  flush_everything();
  if (is_pipe(ticket.error_fd)) write_all(ticket.error_fd, std::string_view(&kReached, 1));
  for (const int fd : {1, 2}) write_all(fd, "\n" + ticket.nonce + "\n");
  g_inside_function = true;
  int code = 0;
  std::string message;
  try {
    function();
  } catch (const Error& error) {
    code = error.exit_code();
    message = error.what();
  } catch (const std::exception& error) {
    code = 1;
    message = without_backtrace(error);
  } catch (...) {
    code = 1;
    message = "an exception that is not a std::exception";
  }
  flush_everything();
  if (code != 0 && is_pipe(ticket.error_fd)) write_all(ticket.error_fd, message.substr(0, kMaxText));
  std::exit(code);
}

// --- the parent's side

Request request_for(const SpawnOptions& options) {
  Request request;
  request.command = g_first_words;
  request.job_id = fmt::format("spawn-{}", ::getpid());
  request.processes = options.nprocs < 0 ? "auto" : std::to_string(options.nprocs);
  if (!options.gpus.empty()) {
    request.devices = split(options.gpus, ',');
    request.devices_name = "gpus";
    if (options.nprocs < 0) request.processes.reset();
  }
  return request;
}

void check(const SpawnOptions& options) {
  if (g_inside_function)
    throw UsageError("spawn() inside a spawned function is not supported; start all processes from main()");
  if (options.nprocs == 0 || options.nprocs < -1 || options.nprocs > 65536)
    throw UsageError("spawn: nprocs is {}; it must be -1 (all devices) or from 1 to 65536", options.nprocs);
  const auto gpus = split(options.gpus, ',');
  if (options.nprocs > 0 && !gpus.empty() && static_cast<int>(gpus.size()) != options.nprocs)
    throw UsageError("spawn: gpus \"{}\" names {} devices, but nprocs is {}; they must be equal", options.gpus,
                     gpus.size(), options.nprocs);
}

void check_enough_devices(const SpawnOptions& options, const NodeInfo& node) {
  const auto devices = static_cast<int>(node.devices.size());
  if (devices > 0 && options.nprocs > devices)
    throw UsageError(
        "spawn: nprocs is {}, but only {} GPUs are visible; lower nprocs or set CUDA_VISIBLE_DEVICES=-1 for the CPU",
        options.nprocs, devices);
}

LocalNode describe(const Request& request, const Seat& seat) {
  try {
    return describe_local_node(request, seat);
  } catch (const UsageError& error) {
    throw UsageError("spawn: {}", error.what());
  }
}

std::string read_rest(int fd) {
  set_nonblocking(fd);
  std::string text(1 + kMaxText, '\0');
  const ssize_t size = ::read(fd, text.data(), text.size());
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

}  // namespace

// Owns the thread that owns the processes.
class SpawnContext::Impl {
 public:
  Impl(const SpawnOptions& options, int call)
      : options_(options),
        nonce_("trireme-spawn-" + to_hex(random_bytes(8))),
        call_(call),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const Request request = request_for(options);
    const Seat seat = find_seat(request, local_interfaces());
    node_ = describe(request, seat);
    check_enough_devices(options, node_.info);
    meeting_ = Meeting::alone(node_.info, 0);
    plan_ = make_plan(request, {node_.info}, {.amx_broken = amx_is_broken(), .inherited = env::all()});
    token_ = make_memory_file("trireme-token", meeting_->token().bytes());
    children_.resize(plan_.workers.size());
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      children_[rank].error = make_pipe();
      children_[rank].input = first_input();
      children_[rank].spec = spec_of(rank);
      children_[rank].spec.grace = options.grace;
    }
    state_.emplace(static_cast<int>(children_.size()), JobState::Timing{.grace = options.grace});
    early_ends_.emplace(meeting_->keys(), 0);
    flush_everything();
    thread_ = start_quiet_thread("spawn", [this] { run(); });
    wait_until_started();
  }

  ~Impl() {
    const bool too_early = is_running();
    const uint64_t one = 1;
    write_all(stop_.get(), std::string_view(reinterpret_cast<const char*>(&one), sizeof one));
    thread_.join();
    log_what_nobody_fetched(too_early);
  }

  bool join(std::optional<Clock::duration> timeout) {
    std::unique_lock lock(mutex_);
    const auto ended = [this]() TRIREME_REQUIRES(mutex_) { return ended_; };
    if (!timeout) {
      changed_.wait(lock, ended);
    } else if (!changed_.wait_for(lock, *timeout, ended)) {
      asked_ = true;
      return false;
    }
    fetched_ = true;
    if (error_) throw SpawnError(*error_);
    return true;
  }

  std::vector<int> pids() const {
    const std::lock_guard lock(mutex_);
    return pids_;
  }

  bool is_running() const {
    const std::lock_guard lock(mutex_);
    return !ended_;
  }

  // A caller who drops the context without join() would take this for success.
  void log_what_nobody_fetched(bool too_early) const {
    const std::lock_guard lock(mutex_);
    if (error_ && !fetched_)
      log_error("spawn: {}; nobody has fetched this error: keep the context that spawn() returns and call its join()",
                error_->what());
    else if (too_early && !asked_)
      log_error(
          "spawn: stopped the processes, {} of them, because the last copy of their context went before they had "
          "ended; keep the context that spawn() returns and call its join()",
          children_.size());
  }

 private:
  struct Child {
    FdPair error;                      // see kReached
    UniqueFd input;                    // becomes its standard input, if valid
    proc::ProcessSpec spec;            // made in the caller's thread, which may change the environment later
    bool reached[2] = {false, false};  // by stream: main() has reached the call, and what follows is shown
    bool marked = false;               // the same, by its pipe
    std::string said;                  // the text of its exception
    std::string before[2];             // unfinished text before that
    proc::LineCutter cutters[2];
    proc::Tail tail;
    std::optional<Ending> ending;
    bool unconfirmed = false;  // as the launcher's Supervisor has it

    // By one of three ways: main() may close any of them, or send it elsewhere.
    bool reached_the_call() const { return marked || reached[0] || reached[1]; }
    // A copy that ends without having run the function has failed, whatever its exit code.
    bool succeeded() const { return ending->success() && reached_the_call(); }
  };

  // So that pids() has them.
  void wait_until_started() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this]() TRIREME_REQUIRES(mutex_) { return started_ || ended_; });
  }

  void run() {
    std::optional<SpawnError> error;
    try {
      proc::ProcessSet set;
      set_ = &set;
      set.watch(stop_.get());
      start();
      while (!state_->all_finished() && !state_->given_up(Clock::now())) turn();
      error = verdict();
    } catch (const Error& problem) {
      error.emplace(0, problem.exit_code(), problem.what());
    } catch (const std::exception& problem) {
      error.emplace(0, exit_code::kSystem, problem.what());
    }
    console_.drain(Deadline::in(std::chrono::seconds(1)));
    const std::lock_guard lock(mutex_);
    pids_.assign(children_.size(), 0);
    error_ = std::move(error);
    ended_ = true;
    changed_.notify_all();
  }

  void start() {
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      set_->start(children_[rank].spec);
      children_[rank].error.second.reset();
      children_[rank].input.reset();
    }
  }

  proc::ProcessSpec spec_of(size_t rank) const {
    const int error_fd = children_[rank].error.second.get();
    const WorkerResources resources{
        .store = meeting_->store(), .token_fd = token_.get(), .listen_fd = node_.ports.socket(static_cast<int>(rank))};
    VariableMap variables = worker_variables(plan_.workers[rank], resources);
    for (const char* name : {"PADDLE_LOG_DIR", "PADDLE_BACKUP_ENV_PATH"}) variables.erase(name);  // there are no files
    variables["TRIREME_SPAWN"] = fmt::format("{}:{}:{}", call_, error_fd, nonce_);
    proc::ProcessSpec spec = worker_process(plan_.workers[rank], resources, variables);
    spec.inherited.push_back(error_fd);
    spec.program = "/proc/self/exe";  // also when the file was replaced or removed meanwhile; argv[0] stays as it was
    spec.directory = g_first_folder;
    spec.input = children_[rank].input.get();
    return spec;
  }

  void turn() {
    const Deadline next = earlier(state_->next(), Deadline::in(Millis(console_.flush() ? 200 : 20)));
    for (const proc::Event& event : set_->wait(next)) handle(event);
    for (size_t rank = 0; rank < children_.size(); ++rank) flush_held(rank, Clock::now() - Millis(200));
    confirm_early_ends();
    if (state_->culprit(Clock::now())) state_->stop(SIGTERM, Clock::now());
    while (const auto signal = state_->signal_due(Clock::now())) set_->signal_all(*signal);
    note_pids();
  }

  void handle(const proc::Event& event) {
    if (event.kind == proc::Event::Kind::wakeup) return stop_all();
    Child& child = children_[static_cast<size_t>(event.process)];
    if (event.kind == proc::Event::Kind::output) handle_output(static_cast<size_t>(event.process), event);
    if (event.kind == proc::Event::Kind::finished) state_->finished(event.process);
    if (event.kind != proc::Event::Kind::exited) return;
    child.ending = to_ending(event);
    child.said = read_rest(child.error.first.get());
    child.marked = child.said.starts_with(kReached);
    if (child.marked) child.said.erase(0, 1);
    note_end(event.process);
    state_->exited(
        event.process,
        {.success = child.succeeded(), .victim = child.unconfirmed, .gave_up = child.unconfirmed, .when = event.when});
  }

  void note_end(int rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    if (child.succeeded())
      early_ends_->note({.rank = rank, .local_rank = rank});
    else
      child.unconfirmed = early_ends_->gave_up(rank, *child.ending);
  }

  void confirm_early_ends() {
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      if (!child.unconfirmed || !early_ends_->culprit_of(static_cast<int>(rank))) continue;
      child.unconfirmed = false;
      state_->confirm(static_cast<int>(rank));
    }
  }

  void stop_all() {
    set_->unwatch(stop_.get());
    state_->stop(SIGTERM, Clock::now());
  }

  void handle_output(size_t rank, const proc::Event& event) {
    Child& child = children_[rank];
    const auto stream = static_cast<size_t>(event.stream);
    std::string_view text = event.bytes;
    std::string& before = child.before[stream];
    if (!child.reached[stream]) {
      child.tail.add(text);
      before += text;
      const size_t mark = before.find("\n" + nonce_ + "\n");
      if (mark == std::string::npos) {
        if (before.size() > 4096) before.erase(0, before.size() - 4096);  // the mark may be half there
        return;
      }
      child.reached[stream] = true;
      child.tail = proc::Tail();
      before.erase(0, mark + nonce_.size() + 2);
      text = before;
    }
    show(rank, event.stream, child.cutters[stream].feed(text));
  }

  void flush_held(size_t rank, Clock::time_point since) {
    for (const proc::Stream stream : {proc::Stream::out, proc::Stream::err}) {
      proc::LineCutter& cutter = children_[rank].cutters[static_cast<size_t>(stream)];
      if (cutter.holds_something() && cutter.held_since() <= since) show(rank, stream, cutter.flush());
    }
  }

  void show(size_t rank, proc::Stream stream, const std::string& text) {
    children_[rank].tail.add(text);
    const bool to_stderr = stream == proc::Stream::err;
    console_.write(static_cast<int>(rank) * 2 + (to_stderr ? 1 : 0), to_stderr, fmt::format("rank {}: ", rank), text);
  }

  void note_pids() {
    const std::lock_guard lock(mutex_);
    pids_.resize(children_.size());
    bool all_started = true;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      pids_[rank] = set_->pid(static_cast<int>(rank));
      all_started &= pids_[rank] != 0 || children_[rank].ending.has_value();
    }
    if (!all_started || started_) return;
    started_ = true;
    changed_.notify_all();
  }

  std::optional<SpawnError> verdict() {
    for (size_t rank = 0; rank < children_.size(); ++rank) flush_held(rank, Clock::now());
    const auto culprit = state_->culprit(Clock::now());
    if (!culprit) return std::nullopt;
    Child& child = children_[static_cast<size_t>(*culprit)];
    if (early_ends_->gave_up(*culprit, *child.ending))
      if (const auto early = early_ends_->culprit_of(*culprit)) return early_error(*early);
    if (!child.reached_the_call()) return unreached_error(*culprit);
    const auto code = exit_code_of(*child.ending);
    if (!child.said.empty())
      return SpawnError(*culprit, code, fmt::format("rank {} failed: {}", *culprit, printable_lines(child.said)));
    return SpawnError(*culprit, code, fmt::format("rank {} ended: {}", *culprit, words_about(child)));
  }

  static std::string words_about(const Child& child) {
    const Diagnosis diagnosis = diagnose(*child.ending, child.tail.lines(), Starter::spawn);
    return diagnosis.words + (diagnosis.advice.empty() ? "" : "; " + diagnosis.advice);
  }

  SpawnError unreached_error(int rank) const {
    const Child& child = children_[static_cast<size_t>(rank)];
    const std::string lines = trireme::join(child.tail.lines(), "\n");
    return {rank, child.ending->success() ? exit_code::kUsage : exit_code_of(*child.ending),
            fmt::format("rank {} ended before it reached spawn(): {}; every copy of the program runs main() again and "
                        "must reach the same call, and what a pipe or a terminal has sent is not there a second time{}",
                        rank, words_about(child), lines.empty() ? "" : "; its last lines were:\n" + lines)};
  }

  static SpawnError early_error(const WorkerEnding& early) {
    const Diagnosis diagnosis = diagnose(early);
    return {early.rank, exit_code::kPeer, fmt::format("rank {} {}; {}", early.rank, diagnosis.words, diagnosis.advice)};
  }

  const SpawnOptions options_;
  const std::string nonce_;
  const int call_;
  UniqueFd stop_;
  LocalNode node_;
  std::unique_ptr<Meeting> meeting_;
  JobPlan plan_;
  UniqueFd token_;
  std::vector<Child> children_;
  std::optional<JobState> state_;
  std::optional<EarlyEnds> early_ends_;
  proc::ProcessSet* set_ = nullptr;  // lives on the thread's stack
  proc::Console console_;
  std::thread thread_;

  mutable Mutex mutex_;
  std::condition_variable changed_;
  bool started_ TRIREME_GUARDED_BY(mutex_) = false;  // every process has a number, or has ended already
  bool ended_ TRIREME_GUARDED_BY(mutex_) = false;
  bool asked_ TRIREME_GUARDED_BY(mutex_) = false;    // join() has said that processes still run
  bool fetched_ TRIREME_GUARDED_BY(mutex_) = false;  // join() has told how they ended
  std::optional<SpawnError> error_ TRIREME_GUARDED_BY(mutex_);
  std::vector<int> pids_ TRIREME_GUARDED_BY(mutex_);
};

bool SpawnContext::join(std::optional<Clock::duration> timeout) {
  return !impl_ || impl_->join(timeout);
}

std::vector<int> SpawnContext::pids() const {
  return impl_ ? impl_->pids() : std::vector<int>{};
}

SpawnContext spawn(const std::function<void()>& function, const SpawnOptions& options) {
  check(options);
  const int call = ++g_calls;
  if (const auto ticket = own_ticket()) {
    if (ticket->call == call) run_as_child(*ticket, function);
    if (ticket->call > call) return SpawnContext(nullptr);  // the parent has this one behind it
  }
  SpawnContext context(std::make_shared<SpawnContext::Impl>(options, call));
  if (options.join) context.join();
  return context;
}

}  // namespace trireme
