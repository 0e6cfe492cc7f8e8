#include "trireme/proc/guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "trireme/core/error.h"

namespace trireme::proc {
namespace {

constexpr int kLingerMillis = 1000;

int64_t now_nanos() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

int64_t now_millis() {
  return now_nanos() / 1'000'000;
}

void close_from(unsigned first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  for (int fd = static_cast<int>(first); fd < 65536; ++fd) ::close(fd);  // kernels before 5.9
}

// Reads the decimal pids of a short /proc file without allocating.
template <typename Visit>
void for_each_pid_in(const char* path, Visit visit) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char buffer[4096];
  pid_t pid = 0;
  for (;;) {
    const ssize_t size = ::read(file, buffer, sizeof buffer);
    if (size <= 0) break;
    for (ssize_t i = 0; i < size; ++i) {
      if (buffer[i] >= '0' && buffer[i] <= '9') {
        pid = pid * 10 + (buffer[i] - '0');
      } else {
        if (pid > 0) visit(pid);
        pid = 0;
      }
    }
  }
  if (pid > 0) visit(pid);
  ::close(file);
}

// --- the worker's side, between fork and exec

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_DFL) continue;
    // nohup's choice is the user's and stays; a handler or an ignore of the keeper's own does not.
    if (number == SIGHUP && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(number, &action, nullptr);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// First out of the way, then into place: a source may itself be one of the three. Inherited descriptors keep their
// number, so that those the user's shell handed down are not overwritten.
bool place_descriptors(const GuardedCommand& command) {
  int sources[3];
  for (int i = 0; i < 3; ++i) {
    sources[i] = ::fcntl(command.standard_fds[i], F_DUPFD_CLOEXEC, 3);
    if (sources[i] < 0) return false;
  }
  for (int i = 0; i < 3; ++i)
    if (::dup2(sources[i], i) < 0) return false;  // dup2 clears close-on-exec
  for (const int fd : *command.inherited)
    if (::fcntl(fd, F_SETFD, 0) != 0) return false;
  return true;
}

void pin_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void limit_open_files(size_t count) {
  rlimit limit{};
  if (count == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = count;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void take_terminal() {
  ::signal(SIGTTOU, SIG_IGN);
  ::tcsetpgrp(0, ::getpid());
  ::signal(SIGTTOU, SIG_DFL);
}

[[noreturn]] void become_worker(const GuardedCommand& command, int control, pid_t guard) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guard) ::_exit(127);  // the guard died before the line above
  bool ready = place_descriptors(command);
  if (ready && command.foreground) take_terminal();
  pin_to(*command.cpus);
  limit_open_files(command.open_files);
  if (ready && command.directory) ready = ::chdir(command.directory) == 0;
  const int error = errno;
  reset_signals();
  if (ready) ::execve(command.path, command.arguments, command.environment);
  const GuardReport report{GuardReport::Kind::exec_failed, ::getpid(), ready ? errno : error, 0};
  ::send(control, &report, sizeof report, MSG_NOSIGNAL);
  ::_exit(report.value == ENOENT ? exit_code::kNotFound : exit_code::kNotExecutable);
}

// --- the guard's side

class Guard {
 public:
  Guard(int control, pid_t worker, int child_signals, int64_t grace_millis)
      : control_(control), worker_(worker), child_signals_(child_signals), grace_millis_(grace_millis) {}

  [[noreturn]] void run() {
    for (;;) {
      pollfd entries[2] = {{control_, POLLIN, 0}, {child_signals_, POLLIN, 0}};
      ::poll(entries, 2, poll_timeout());
      if (entries[1].revents) drain_child_signals();
      if (reap() == 0) ::_exit(0);
      if (entries[0].revents) obey();
      if (kill_at_ != 0 && now_millis() >= kill_at_) kill_everything();
    }
  }

 private:
  int poll_timeout() const {
    if (killing_) return 50;  // freshly adopted leftovers must be found and killed too
    if (kill_at_ == 0) return -1;
    const int64_t left = kill_at_ - now_millis();
    return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
  }

  void drain_child_signals() {
    signalfd_siginfo info;
    while (::read(child_signals_, &info, sizeof info) > 0) {
    }
  }

  // Collects the dead; returns 0 when no child is left.
  int reap() {
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid == 0) {
        if (killing_) kill_everything();
        return 1;
      }
      if (pid < 0) return errno == ECHILD ? 0 : 1;
      if (pid == worker_) worker_ended(status);
    }
  }

  void worker_ended(int status) {
    const GuardReport report{GuardReport::Kind::ended, worker_, status, now_nanos()};
    ::send(control_, &report, sizeof report, MSG_NOSIGNAL);
    send_to_all(SIGTERM);
    kill_soon();
  }

  void obey() {
    GuardOrder order{};
    const ssize_t size = ::recv(control_, &order, sizeof order, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size != sizeof order) return keeper_gone();
    if (order.signal == SIGKILL) return kill_everything();
    if (order.signal != SIGSTOP && order.signal != SIGCONT) linger_millis_ = grace_millis_;
    send_to_all(order.signal);
  }

  void keeper_gone() {
    ::close(control_);
    control_ = -1;  // poll ignores negative descriptors
    send_to_all(SIGTERM);
    kill_soon();
  }

  void kill_soon() {
    if (kill_at_ == 0) kill_at_ = now_millis() + linger_millis_;
  }

  void kill_everything() {
    killing_ = true;
    send_to_all(SIGKILL);
  }

  // The worker's group, and every child of the guard that is not in it. A stopped process is woken to see the signal.
  void send_to_all(int signal) {
    ::kill(-worker_, signal);
    if (signal == SIGTERM || signal == SIGINT) ::kill(-worker_, SIGCONT);
    for_each_pid_in("/proc/thread-self/children", [&](pid_t child) {
      if (::getpgid(child) == worker_) return;
      ::kill(child, signal);
      if (signal == SIGTERM || signal == SIGINT) ::kill(child, SIGCONT);
    });
  }

  int control_;
  pid_t worker_;
  int child_signals_;
  int64_t grace_millis_;
  int64_t linger_millis_ = kLingerMillis;
  int64_t kill_at_ = 0;
  bool killing_ = false;
};

int block_all_and_watch_children() {
  sigset_t set;
  ::sigfillset(&set);
  ::sigprocmask(SIG_SETMASK, &set, nullptr);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, nullptr);  // a keeper that ignores SIGCHLD would make the kernel reap for us
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

[[noreturn]] void become_guard(const GuardedCommand& command, int control) {
  ::setpgid(0, 0);  // Ctrl-C in the terminal is for the keeper
  ::prctl(PR_SET_NAME, "trireme-guard");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int child_signals = block_all_and_watch_children();
  const pid_t guard = ::getpid();
  const pid_t worker = ::fork();
  if (worker == 0) become_worker(command, control, guard);
  if (worker > 0) ::setpgid(worker, worker);  // both sides do: whoever is first, a signal to the group finds it
  const GuardReport report{worker > 0 ? GuardReport::Kind::started : GuardReport::Kind::exec_failed, worker, errno, 0};
  ::send(control, &report, sizeof report, MSG_NOSIGNAL);
  if (worker < 0) ::_exit(exit_code::kSystem);
  // Keep nothing of the keeper's open: neither other workers' control sockets nor any pipe whose end someone awaits.
  const int kept_control = ::dup3(::fcntl(control, F_DUPFD, 2), 0, O_CLOEXEC);
  const int kept_signals = ::dup3(::fcntl(child_signals, F_DUPFD, 2), 1, O_CLOEXEC);
  close_from(2);
  Guard(kept_control, worker, kept_signals, command.grace_millis).run();
}

}  // namespace

pid_t start_guard(const GuardedCommand& command, int control) {
  const pid_t guard = ::fork();
  if (guard < 0) throw SystemError(errno, "cannot start a process");
  if (guard == 0) become_guard(command, control);
  return guard;
}

}  // namespace trireme::proc
