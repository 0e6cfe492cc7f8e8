#include "trireme/proc/process_set.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"
#include "trireme/proc/guard.h"

namespace trireme::proc {
namespace {

constexpr size_t kReadSize = 64 * 1024;
constexpr int kLastReads = 64;  // more than a pipe can hold; a stranger may have been given the other end

FdPair make_control_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    throw SystemError(errno, "cannot make a control socket (open-file limit? see: ulimit -n)");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

UniqueFd open_null() {
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) throw SystemError(errno, "cannot open /dev/null");
  return null;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

std::vector<pid_t> own_children() {
  std::vector<pid_t> pids;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored))
    for (const std::string& word : split(read_file(task.path() / "children").value_or(""), ' '))
      if (const auto pid = parse_int(word, 1, INT32_MAX)) pids.push_back(static_cast<pid_t>(*pid));
  return pids;
}

/// Also waits for its end, which comes at once unless the kernel holds the process.
void kill_child(pid_t pid, Deadline deadline) {
  const UniqueFd child(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ::kill(pid, SIGKILL);
  if (child) wait_readable(child.get(), deadline);
  ::waitpid(pid, nullptr, WNOHANG);
}

}  // namespace

ExitStatus ExitStatus::from_wait_status(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status), .core_dumped = WCOREDUMP(status) != 0};
  return {.code = WEXITSTATUS(status)};
}

std::string to_string(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit {}", status.code);
  return fmt::format("killed by signal {}{}", status.signal, status.core_dumped ? " (core dumped)" : "");
}

struct ProcessSet::Child {
  pid_t guard = 0;
  pid_t pid = 0;
  UniqueFd control;
  UniqueFd output[2];  // by Stream
  int exec_error = 0;
  bool exited = false;
};

ProcessSet::ProcessSet() = default;

ProcessSet::~ProcessSet() {
  signal_all(SIGKILL);
  const Deadline deadline = Deadline::in(std::chrono::seconds(1));
  while (running() > 0 && !deadline.passed()) wait(deadline);
  // A guard that is still there is itself stopped, or waits for something unkillable.
  for (const auto& [id, child] : children_) ::kill(child->guard, SIGKILL);
}

int ProcessSet::start(const ProcessSpec& spec) {
  FdPair control = make_control_pair();
  FdPair out = make_pipe();
  FdPair err = make_pipe();
  const UniqueFd null = open_null();
  const std::vector<char*> arguments = pointers(spec.command);
  const std::vector<char*> environment = pointers(spec.environment);
  GuardedCommand command{};
  command.path = spec.program.empty() ? spec.command.at(0).c_str() : spec.program.c_str();
  command.arguments = arguments.data();
  command.environment = environment.data();
  command.directory = spec.directory.empty() ? nullptr : spec.directory.c_str();
  command.standard_fds[0] = spec.interactive ? 0 : spec.input >= 0 ? spec.input : null.get();
  command.standard_fds[1] = spec.interactive ? 1 : out.second.get();
  command.standard_fds[2] = spec.interactive ? 2 : err.second.get();
  command.inherited = &spec.inherited;
  command.cpus = &spec.cpus;
  command.grace_millis = spec.grace.count();
  command.foreground = spec.interactive;
  command.open_files = spec.open_files;

  auto child = std::make_unique<Child>();
  child->guard = start_guard(command, control.second.get());
  child->control = std::move(control.first);
  child->output[0] = std::move(out.first);
  child->output[1] = std::move(err.first);
  for (const UniqueFd& fd : child->output) set_nonblocking(fd.get());
  children_.emplace(next_, std::move(child));
  return next_++;
}

std::vector<Event> ProcessSet::wait(Deadline deadline, const sigset_t* open_signals) {
  std::vector<pollfd> entries;
  std::vector<std::pair<int, int>> owners;  // process, 0 = control, 1 = out, 2 = err
  for (const auto& [id, child] : children_) {
    entries.push_back({child->control.get(), POLLIN, 0});
    owners.emplace_back(id, 0);
    for (int stream = 0; stream < 2; ++stream) {
      if (!child->output[stream]) continue;
      entries.push_back({child->output[stream].get(), POLLIN, 0});
      owners.emplace_back(id, stream + 1);
    }
  }
  for (const int fd : watched_) entries.push_back({fd, POLLIN, 0});

  const Millis left = deadline.left();
  const timespec timeout{static_cast<time_t>(left.count() / 1000), static_cast<long>(left.count() % 1000) * 1'000'000};
  const int ready = ::ppoll(entries.data(), entries.size(), deadline.is_never() ? nullptr : &timeout, open_signals);
  std::vector<Event> events;
  if (ready <= 0) {
    if (ready < 0 && errno != EINTR) throw SystemError(errno, "cannot wait for {} processes", children_.size());
    return events;
  }
  // Output first: what a process said before it ended is delivered before its end.
  for (size_t i = 0; i < owners.size(); ++i)
    if (owners[i].second != 0 && entries[i].revents)
      read_output(owners[i].first, *children_.at(owners[i].first), static_cast<Stream>(owners[i].second - 1), events);
  for (size_t i = 0; i < owners.size(); ++i)
    if (owners[i].second == 0 && entries[i].revents)
      read_control(owners[i].first, *children_.at(owners[i].first), events);
  for (size_t i = owners.size(); i < entries.size(); ++i)
    if (entries[i].revents) events.push_back({.kind = Event::Kind::wakeup, .process = entries[i].fd});
  return events;
}

void ProcessSet::read_output(int id, Child& child, Stream stream, std::vector<Event>& events) {
  UniqueFd& fd = child.output[static_cast<int>(stream)];
  std::string bytes(kReadSize, '\0');
  const ssize_t size = ::read(fd.get(), bytes.data(), bytes.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return fd.reset();  // closed by the process, which may well go on
  bytes.resize(static_cast<size_t>(size));
  events.push_back({.kind = Event::Kind::output, .process = id, .stream = stream, .bytes = std::move(bytes)});
}

void ProcessSet::read_control(int id, Child& child, std::vector<Event>& events) {
  GuardReport report{};
  const ssize_t size = ::recv(child.control.get(), &report, sizeof report, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size != sizeof report) return finish(id, child, events);
  switch (report.kind) {
    case GuardReport::Kind::started:
      child.pid = report.pid;
      break;
    case GuardReport::Kind::exec_failed:
      child.exec_error = report.value;
      break;
    case GuardReport::Kind::ended:
      child.exited = true;
      events.push_back({.kind = Event::Kind::exited,
                        .process = id,
                        .status = ExitStatus::from_wait_status(report.value),
                        .pid = report.pid,
                        .exec_error = child.exec_error,
                        .when = Clock::time_point(std::chrono::nanoseconds(report.monotonic_nanos))});
      break;
  }
}

void ProcessSet::finish(int id, Child& child, std::vector<Event>& events) {
  if (!child.exited) {
    // The guard itself was killed. The kernel has killed the worker with it; its group may hold more.
    if (child.pid > 0) ::kill(-child.pid, SIGKILL);
    ::waitpid(child.guard, nullptr, 0);  // from here on its children are ours, if anybody's
    if (adopts_) kill_strays();
    events.push_back({.kind = Event::Kind::exited,
                      .process = id,
                      .status = ExitStatus{.signal = SIGKILL},
                      .pid = child.pid,
                      .exec_error = child.exec_error,
                      .when = Clock::now()});
  }
  for (const Stream stream : {Stream::out, Stream::err}) {
    for (int reads = 0; child.output[static_cast<int>(stream)] && reads < kLastReads; ++reads) {
      const size_t before = events.size();
      read_output(id, child, stream, events);
      if (events.size() == before) break;
    }
  }
  if (child.exited) ::waitpid(child.guard, nullptr, 0);
  events.push_back({.kind = Event::Kind::finished, .process = id});
  children_.erase(id);
}

void ProcessSet::adopt_orphans() {
  adopts_ = ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

// Each kill may hand over the next generation, so look again until none is left.
void ProcessSet::kill_strays() const {
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(500));
  for (bool found = true; found && !deadline.passed();) {
    found = false;
    for (const pid_t pid : own_children()) {
      const bool ours =
          std::any_of(children_.begin(), children_.end(), [&](const auto& c) { return c.second->guard == pid; });
      if (ours) continue;
      found = true;
      kill_child(pid, deadline);
    }
  }
}

void ProcessSet::signal(int process, int number) {
  const auto found = children_.find(process);
  if (found == children_.end()) return;
  const GuardOrder order{number};
  ::send(found->second->control.get(), &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ProcessSet::signal_all(int number) {
  for (const auto& [id, child] : children_) signal(id, number);
}

pid_t ProcessSet::pid(int process) const {
  const auto found = children_.find(process);
  return found == children_.end() || found->second->exited ? 0 : found->second->pid;
}

void reclaim_terminal() {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGTTOU, &ignore, &before);
  if (::isatty(0)) ::tcsetpgrp(0, ::getpgrp());
  ::sigaction(SIGTTOU, &before, nullptr);
}

}  // namespace trireme::proc
