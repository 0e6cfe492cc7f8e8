#include "trireme/launch/stack_dump.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/core/test_variable.h"
#include "trireme/core/text.h"
#include "trireme/watch/process_state.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using watch::ProcessState;

const std::string kComputes = "#0  0x55 in compute ()\n#1  0x55 in main ()\n";
const std::string kWaits = "#0  syscall () at syscall.S:38\n#1  0x55 in trireme::data::Loader::begin() ()\n";
const std::string kReads = "#0  0x7f in read ()\n#1  0x55 in trireme::data::Dataset::batch() const ()\n";
const std::string kCalledByLoader = "#2  0x55 in run<trireme::data::Loader::Impl::ask()::{lambda()#1}> ()\n";
const std::string kIdle = "#0  0x7f in pthread_cond_wait ()\n#1  0x7f in c10::ThreadPool::main_loop ()\n";

std::string text(const std::vector<std::string>& frames) {
  return join(frames, "\n") + "\n";
}

TEST(SelectFrames, TheMainThread) {
  EXPECT_EQ(text(select_frames("[New LWP 7]\n" + kComputes + kIdle + kReads + kCalledByLoader)), kComputes);
  EXPECT_EQ(text(select_frames(kWaits + kIdle)), kWaits);
  EXPECT_THAT(select_frames("ptrace: Operation not permitted.\n"), IsEmpty());
}

TEST(SelectFrames, TheThreadThatTheLoaderWaitsFor) {
  EXPECT_EQ(text(select_frames(kWaits + kIdle + kReads + kCalledByLoader + kReads)),
            kWaits + "in a thread of the Loader:\n" + kReads + kCalledByLoader);
}

TEST(SelectFrames, ALoaderWithoutThreads) {
  const std::string main = kReads + "#2  0x55 in trireme::data::Loader::begin() ()\n";
  EXPECT_EQ(text(select_frames(main + kIdle)), main);
}

TEST(SelectFrames, ThirtyOfAThread) {
  std::string output;
  for (int frame = 0; frame < 40; ++frame) output += fmt::format("#{}  0x55 in recurse ()\n", frame);
  EXPECT_EQ(select_frames(output).size(), 30u);
}

// A child, and a gdb of our own in PATH.
class StackDumpTest : public testing::Test {
 protected:
  ~StackDumpTest() override {
    if (child_ == 0) return;
    ::kill(-child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  template <typename Life>
  void start(Life life) {
    child_ = ::fork();
    if (child_ != 0) return void(::setpgid(child_, child_));
    ::setpgid(0, 0);
    life();
    for (;;) ::pause();
  }
  void start() {
    start([] {});
  }

  void write_gdb(const std::string& script) {
    const std::string file = (folder_.path() / "gdb").string();
    write_file_atomically(file, "#!/bin/sh\n" + script + "\n");
    ::chmod(file.c_str(), 0755);
  }

  bool is(ProcessState state) const { return watch::read_process_state(child_) == state; }

  std::vector<std::string> lines(Millis time) const {
    StackDump dump(child_, Deadline::in(time));
    while (!dump.done()) dump.wait();
    return dump.lines();
  }

  const TempDir folder_;
  const ScopedVariable path_{"PATH", folder_.path().string()};
  pid_t child_ = 0;
};

constexpr const char* kStops = "while [ \"$1\" != -p ]; do shift; done; kill -STOP $2; exec sleep 60";

TEST_F(StackDumpTest, AProcessThatWasStoppedBeforeStaysSo) {
  start();
  write_gdb("exec sleep 60");
  ::kill(child_, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is(ProcessState::stopped); }));
  { const StackDump dump(child_, Deadline::in(30s)); }
  EXPECT_TRUE(is(ProcessState::stopped));
}

TEST_F(StackDumpTest, AToolThatIsEndedLeavesNoStoppedProcess) {
  start();
  write_gdb(kStops);
  {
    StackDump dump(child_, Deadline::in(30s));
    ASSERT_TRUE(eventually([&] { return !dump.done() && is(ProcessState::stopped); }));
  }
  EXPECT_TRUE(eventually([&] { return is(ProcessState::sleeping); }));
}

// The parent of vfork(2) waits as one that reads a disk.
TEST_F(StackDumpTest, NoDebuggerWhileTheProcessWaitsForADisk) {
  start([] {
    if (::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0)
      for (;;) ::pause();
  });
  write_gdb("echo '#0  called'");
  ASSERT_TRUE(eventually([&] { return is(ProcessState::disk); }));
  EXPECT_THAT(join(lines(200ms), "\n"), HasSubstr("a thread waits for a disk"));
}

TEST_F(StackDumpTest, TheToolsOwnReason) {
  start();
  write_gdb("echo Could not attach; echo 'ptrace: Operation not permitted.' >&2; exit 0");
  EXPECT_THAT(join(lines(30s), "\n"), HasSubstr("the debugger says: ptrace: Operation not permitted."));
}

}  // namespace
}  // namespace trireme::launch
