#include "trireme/proc/process_set.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>

#include "trireme/core/env.h"
#include "trireme/core/file.h"
#include "trireme/proc/signals.h"

namespace trireme::proc {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

ProcessSpec shell(const std::string& script) {
  return {.command = {"/bin/sh", "-c", script}, .environment = {"PATH=/usr/bin:/bin"}};
}

// Everything a process did until it was finished.
struct Record {
  std::string out, err;
  ExitStatus status;
  int exec_error = 0;
  bool exited = false, finished = false;
};

class ProcessSetTest : public testing::Test {
 protected:
  void pump(Clock::duration limit, const std::function<bool()>& done) {
    const Deadline deadline = Deadline::in(limit);
    while (!done() && !deadline.passed())
      for (Event& event : set_.wait(deadline)) note(event);
    ASSERT_TRUE(done()) << "not within the time";
  }

  void note(Event& event) {
    if (event.kind == Event::Kind::wakeup) return ++wakeups_, void();
    Record& record = records_[event.process];
    if (event.kind == Event::Kind::output) (event.stream == Stream::out ? record.out : record.err) += event.bytes;
    if (event.kind == Event::Kind::exited) {
      record.exited = true;
      record.status = event.status;
      record.exec_error = event.exec_error;
    }
    if (event.kind == Event::Kind::finished) record.finished = true;
  }

  Record run(const ProcessSpec& spec, Clock::duration limit = 10s) {
    const int id = set_.start(spec);
    pump(limit, [&] { return records_[id].finished; });
    return records_[id];
  }

  // Starts and waits for the first output.
  int start_and_hear(const ProcessSpec& spec) {
    const int id = set_.start(spec);
    pump(10s, [&] { return records_[id].out.find('\n') != std::string::npos; });
    return id;
  }

  ProcessSet set_;
  std::map<int, Record> records_;
  int wakeups_ = 0;
};

bool is_alive(pid_t pid) {
  const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  return stat && stat->find(") Z ") == std::string::npos;
}

bool eventually(const std::function<bool()>& condition, Clock::duration limit) {
  const Deadline deadline = Deadline::in(limit);
  while (!condition()) {
    if (deadline.passed()) return false;
    ::usleep(5000);  // layers: sleep ok, because /proc offers nothing to wait on
  }
  return true;
}

TEST_F(ProcessSetTest, DeliversOutputAndExitCode) {
  const Record record = run(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(record.out, "out\n");
  EXPECT_EQ(record.err, "err\n");
  EXPECT_EQ(record.status, ExitStatus{.code = 7});
  EXPECT_EQ(set_.running(), 0);
}

TEST_F(ProcessSetTest, TellsTheSignalThatEndedIt) {
  EXPECT_EQ(run(shell("kill -SEGV $$")).status.signal, SIGSEGV);
}

TEST_F(ProcessSetTest, AProgramThatCannotBeExecutedIsAnEvent) {
  const Record missing = run({.command = {"/no/such/program"}});
  EXPECT_EQ(missing.exec_error, ENOENT);
  EXPECT_EQ(missing.status.code, 127);
  const Record folder = run({.command = {"/tmp"}});
  EXPECT_EQ(folder.exec_error, EACCES);
  EXPECT_EQ(folder.status.code, 126);
}

TEST_F(ProcessSetTest, AllOutputComesBeforeFinishedEvenWhenThereIsMuch) {
  const Record record = run(shell("head -c 3000000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(record.out.size(), 3'000'000u);
}

TEST_F(ProcessSetTest, AProcessMayCloseItsOutputAndGoOn) {
  const Record record = run(shell("echo before; exec >&- 2>&-; sleep 0.1; exit 5"));
  EXPECT_EQ(record.out, "before\n");
  EXPECT_EQ(record.status.code, 5);
}

TEST_F(ProcessSetTest, InheritsExactlyTheGivenDescriptors) {
  for (int fd = 3; fd < 1024; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // what this test itself was handed down
  const UniqueFd token = make_memory_file("token", "secret");
  const std::string number = std::to_string(token.get());
  ProcessSpec spec =
      shell("cat /dev/fd/" + number + "; echo; for n in $(seq 0 40); do [ -e /proc/$$/fd/$n ] && echo $n; done; true");
  spec.inherited = {token.get()};
  EXPECT_EQ(run(spec).out, "secret\n0\n1\n2\n" + number + "\n");
}

TEST_F(ProcessSetTest, StandardInputIsEmpty) {
  EXPECT_EQ(run(shell("cat; echo done")).out, "done\n");
}

TEST_F(ProcessSetTest, SignalsAndHandlersOfTheKeeperAreNotInherited) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_DFL);
  const std::string out = run(shell("grep -E '^Sig(Ign|Blk)' /proc/self/status")).out;
  const auto signals =
      [&](const std::string& field) {  // without 32 and 33, the C library's own, which nobody can reset
        return std::stoull(out.substr(out.find(field) + field.size()), nullptr, 16) & 0x7fffffff;
      };
  EXPECT_EQ(signals("SigBlk:"), 0u);
  EXPECT_EQ(signals("SigIgn:"), 0u);
}

TEST_F(ProcessSetTest, NohupIsTheUsersWishAndStays) {
  ::signal(SIGHUP, SIG_IGN);
  EXPECT_EQ(run(shell("kill -HUP $$; echo still here")).out, "still here\n");
  ::signal(SIGHUP, SIG_DFL);
}

TEST_F(ProcessSetTest, ATermReachesTheWholeGroup) {
  const int id = start_and_hear(shell("sleep 100 & echo $!; wait"));
  const pid_t grandchild = std::stoi(records_[id].out);
  set_.signal(id, SIGTERM);
  pump(5s, [&] { return records_[id].finished; });
  EXPECT_EQ(records_[id].status.signal, SIGTERM);
  EXPECT_FALSE(is_alive(grandchild));
}

TEST_F(ProcessSetTest, AKillReachesThoseWhoIgnoreTermAndThoseWhoLeftTheSession) {
  const int id =
      start_and_hear(shell("trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; sleep 100' & wait; sleep 100"));
  const pid_t daemon = std::stoi(records_[id].out);
  set_.signal(id, SIGKILL);
  pump(5s, [&] { return records_[id].finished; });
  EXPECT_EQ(records_[id].status.signal, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_alive(daemon); }, 2s));
}

TEST_F(ProcessSetTest, LeftoversAreRemovedAfterTheProcessEnded) {
  const Record record = run(shell("setsid sh -c 'trap \"\" TERM; exec sleep 100' & echo $!; exit 3"));
  EXPECT_EQ(record.status.code, 3);
  EXPECT_FALSE(is_alive(std::stoi(record.out)));
}

TEST_F(ProcessSetTest, AStoppedProcessCanBeEnded) {
  const int id = start_and_hear(shell("echo up; kill -STOP $$; sleep 100"));
  set_.signal(id, SIGTERM);
  pump(5s, [&] { return records_[id].finished; });
  EXPECT_EQ(records_[id].status.signal, SIGTERM);
}

TEST_F(ProcessSetTest, AKilledGuardTakesItsProcessAlong) {
  const int id = start_and_hear(shell("echo $PPID; sleep 100 & wait"));
  const pid_t worker = set_.pid(id);
  ::kill(std::stoi(records_[id].out), SIGKILL);
  pump(5s, [&] { return records_[id].finished; });
  EXPECT_EQ(records_[id].status.signal, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_alive(worker); }, 2s));
}

TEST_F(ProcessSetTest, AKilledKeeperLeavesNothing) {
  const FdPair report = make_pipe();
  const pid_t keeper = ::fork();
  if (keeper == 0) {
    ProcessSet set;
    const std::string fd = std::to_string(report.second.get());
    ProcessSpec spec =
        shell("trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >&" + fd + "; sleep 100' & sleep 100");
    spec.inherited = {report.second.get()};
    set.start(spec);
    for (;;) set.wait(Deadline::in(1s));
  }
  char text[32] = "";
  ASSERT_GT(::read(report.first.get(), text, sizeof text - 1), 0);
  ::kill(keeper, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_alive(std::stoi(text)); }, 2s));
}

TEST_F(ProcessSetTest, TheDestructorKillsWhatIsLeft) {
  pid_t pid = 0;
  {
    ProcessSet set;
    set.start(shell("trap '' TERM; echo up; sleep 100"));
    for (const Deadline deadline = Deadline::in(5s); pid == 0 && !deadline.passed(); pid = set.pid(0))
      set.wait(deadline);
  }
  ASSERT_GT(pid, 0);
  EXPECT_FALSE(is_alive(pid));
}

TEST_F(ProcessSetTest, PinsToTheGivenCpus) {
  ProcessSpec spec = shell("grep Cpus_allowed_list /proc/self/status");
  spec.cpus = {0};
  EXPECT_THAT(run(spec).out, HasSubstr("\t0\n"));
}

TEST_F(ProcessSetTest, RunsInTheGivenFolder) {
  const TempDir dir;
  ProcessSpec spec = shell("pwd");
  spec.directory = dir.path();
  EXPECT_EQ(run(spec).out, dir.path().string() + "\n");
}

TEST_F(ProcessSetTest, AWatchedDescriptorWakesTheLoop) {
  const FdPair pipe = make_pipe();
  set_.watch(pipe.first.get());
  ASSERT_TRUE(write_all(pipe.second.get(), "x"));
  pump(5s, [&] { return wakeups_ > 0; });
}

TEST_F(ProcessSetTest, ASignalEndsTheWaitAndIsTaken) {
  SignalGate gate;
  ::kill(::getpid(), SIGTERM);  // blocked: it waits for the gate
  EXPECT_FALSE(gate.take());
  set_.wait(Deadline::in(5s), gate.open());
  EXPECT_EQ(gate.take(), SIGTERM);
  EXPECT_FALSE(gate.take());
}

TEST_F(ProcessSetTest, InputComesFromTheGivenDescriptor) {
  const UniqueFd input = make_memory_file("input", "hello");
  ::lseek(input.get(), 0, SEEK_SET);
  ProcessSpec spec = shell("cat");
  spec.input = input.get();
  EXPECT_EQ(run(spec).out, "hello");
}

TEST_F(ProcessSetTest, ManyProcessesAtOnce) {
  for (int i = 0; i < 50; ++i) set_.start(shell("echo " + std::to_string(i)));
  pump(20s, [&] { return set_.running() == 0; });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(records_[i].out, std::to_string(i) + "\n");
}

}  // namespace
}  // namespace trireme::proc
