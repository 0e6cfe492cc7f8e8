// All children of a launcher and the one loop that waits for them.
//
//   ProcessSet set;
//   set.start({.command = {"/usr/bin/train"}, .environment = …});
//   while (set.running() > 0)
//     for (Event& event : set.wait(Deadline::in(1s))) …
//
// A process is passive: nothing is read, reaped or signalled outside wait() and signal_all(). Every process runs under
// a guard (guard.h), in its own process group, with /dev/null as standard input. Not thread-safe; one thread owns it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/fd.h"

namespace trireme::proc {

struct ProcessSpec {
  std::vector<std::string> command;           // command[0] is the program's path, unless `program` says another
  std::string program = {};                   // the file to execute
  std::vector<std::string> environment = {};  // NAME=value, the whole of it
  std::filesystem::path directory = {};       // empty: the keeper's
  std::vector<int> inherited = {};  // descriptors (3 and above) that stay open in the process, under the same number
  std::vector<int> cpus = {};       // pinned to these; empty: not pinned
  int input = -1;                   // becomes standard input; -1: /dev/null
  Millis grace{1000};               // how long what it started may outlive it, once it was sent a signal
  bool interactive = false;         // gets the keeper's terminal, and no output is captured
  size_t open_files = 0;            // how many it may have open; 0: as many as the keeper
};

enum class Stream { out, err };

/// How a process ended, as the kernel said it.
struct ExitStatus {
  int code = 0;    ///< when the process ended by itself; 0 when a signal ended it
  int signal = 0;  ///< that ended it, or 0
  bool core_dumped = false;

  /// Of what waitpid(2) tells.
  static ExitStatus from_wait_status(int status);
  bool success() const { return signal == 0 && code == 0; }
  /// What a shell would say: the code, or 128 + signal.
  int shell_code() const { return signal ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

/// "exit 7", "killed by signal 11 (core dumped)".
std::string to_string(const ExitStatus& status);

/// One thing that happened.
struct Event {
  enum class Kind {
    output,    // bytes arrived on a stream
    exited,    // the process ended; its leftovers may still be there, and output may follow
    finished,  // nothing of it is left, all output was delivered; the last event of a process
    wakeup,    // a watched descriptor became readable
  };
  Kind kind;
  int process = -1;  // the number start() returned; for wakeup, the descriptor
  Stream stream = Stream::out;
  std::string bytes = {};
  ExitStatus status = {};
  pid_t pid = 0;                // exited: whose end it was
  int exec_error = 0;           // errno, when the program could not be executed at all
  Clock::time_point when = {};  // exited: the moment the guard saw it, so that the first of several can be told
};

class ProcessSet {
 public:
  ProcessSet();
  ~ProcessSet();  // whatever still runs is killed; at most one second is spent waiting for it
  ProcessSet(const ProcessSet&) = delete;
  ProcessSet& operator=(const ProcessSet&) = delete;

  /// Starts a process and returns its number (0, 1, 2 …). A program that cannot be executed is not an exception: it
  /// comes as an `exited` event with exec_error. Throws SystemError when the machine can start no more processes.
  int start(const ProcessSpec& spec);

  /// Waits until something happened or the deadline passed; may return nothing. Signals in `open_signals` are let in
  /// only while waiting, so a handler's flag can be tested between calls without a race; a signal ends the wait.
  std::vector<Event> wait(Deadline deadline, const sigset_t* open_signals = nullptr);

  /// Sends a signal to the process, its group and everything it has started. SIGKILL is final.
  void signal(int process, int number);
  void signal_all(int number);

  /// From now on this process adopts what a killed guard leaves behind, and kills it. For a launcher, which has no
  /// other children; not for a library in someone else's program.
  void adopt_orphans();

  /// wait() also ends when this descriptor is readable, with a wakeup event.
  void watch(int fd) { watched_.push_back(fd); }
  void unwatch(int fd) { std::erase(watched_, fd); }

  /// The process' pid; 0 before it was reported (see wait) and after it ended.
  pid_t pid(int process) const;
  /// Processes whose `finished` has not been delivered.
  int running() const { return static_cast<int>(children_.size()); }

 private:
  struct Child;
  void read_control(int id, Child& child, std::vector<Event>& events);
  void read_output(int id, Child& child, Stream stream, std::vector<Event>& events);
  void finish(int id, Child& child, std::vector<Event>& events);
  void kill_strays() const;

  std::map<int, std::unique_ptr<Child>> children_;
  std::vector<int> watched_;
  int next_ = 0;
  bool adopts_ = false;
};

/// The terminal that controls this process can be given to one interactive child; after that child ended, take it back.
void reclaim_terminal();

}  // namespace trireme::proc
