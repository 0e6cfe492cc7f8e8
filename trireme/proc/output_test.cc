// Log files, the console and the out-of-memory check.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <thread>

#include "trireme/core/fd.h"
#include "trireme/core/file.h"
#include "trireme/proc/console.h"
#include "trireme/proc/log_file.h"
#include "trireme/proc/memory_kill.h"
#include "trireme/proc/process_set.h"

namespace trireme::proc {
namespace {

using testing::HasSubstr;

TEST(LogFile, AppendsByDefaultAndOverwritesWhenAsked) {
  const TempDir dir;
  const auto path = dir.path() / "workerlog.0";
  LogFile(path, {}).write("one\n");
  LogFile(path, {}).write("two\n");
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  LogFile(path, {.overwrite = true}).write("three\n");
  EXPECT_EQ(read_file(path), "three\n");
}

TEST(LogFile, RotatesAtALineEndAndKeepsTheNewest) {
  const TempDir dir;
  const auto path = dir.path() / "log";
  LogFile log(path, {.max_bytes = 8, .keep = 2});
  for (const char* line : {"aaaaaaa\n", "bbbb", "bbbbbbb\n", "ccccccc\n", "d\n"}) log.write(line);
  EXPECT_EQ(read_file(path), "d\n");
  EXPECT_EQ(read_file(path.string() + ".1"), "ccccccc\n");
  EXPECT_EQ(read_file(path.string() + ".2"), "bbbbbbbbbbb\n");
  EXPECT_FALSE(read_file(path.string() + ".3"));
}

TEST(LogFile, AnEndlessLineDoesNotDefeatTheRotation) {
  const TempDir dir;
  const auto path = dir.path() / "log";
  LogFile log(path, {.max_bytes = 1000, .keep = 1});
  for (int i = 0; i < 50; ++i) log.write(std::string(100'000, 'x'));
  EXPECT_LT(std::filesystem::file_size(path), 1'200'000u);
  EXPECT_TRUE(std::filesystem::exists(path.string() + ".1"));
}

TEST(LogFile, AFailedRotationLosesNothing) {
  const TempDir dir;
  const auto path = dir.path() / "log";
  std::filesystem::create_directories(dir.path() / "log.1" / "in the way");
  LogFile log(path, {.max_bytes = 4, .keep = 2});
  std::filesystem::create_directories(dir.path() / "log.2" / "in the way");
  for (const char* line : {"one\n", "two\n", "three\n"}) log.write(line);
  EXPECT_EQ(read_file(path), "one\ntwo\nthree\n");
  EXPECT_TRUE(log.error());
}

TEST(LogFile, AFullDiskIsReportedOnceAndSurvived) {
  LogFile log("/dev/full", {});
  log.write("lost\n");
  log.write("lost too\n");
  ASSERT_TRUE(log.error());
  EXPECT_THAT(*log.error(), HasSubstr("/dev/full: No space left on device"));
}

TEST(LogFile, AMissingFolderIsReportedAndUsedOnceItIsThere) {
  const TempDir dir;
  LogFile log(dir.path() / "later" / "log", {});
  EXPECT_THAT(log.error().value_or(""), HasSubstr("No such file or directory"));
  std::filesystem::create_directory(dir.path() / "later");
  log.write("here\n");
  EXPECT_EQ(read_file(dir.path() / "later" / "log"), "here\n");
}

std::string read_available(int fd) {
  set_nonblocking(fd);
  std::string text(1 << 20, '\0');
  const ssize_t size = ::read(fd, text.data(), text.size());
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

TEST(Console, KeepsStreamsApartAndLinesWhole) {
  const FdPair out = make_pipe();
  const FdPair err = make_pipe();
  Console console(out.second.get(), err.second.get());
  console.write(0, false, "", "half");
  console.say("launcher");
  console.write(0, false, "", " line\n");
  EXPECT_EQ(read_available(out.first.get()), "half line\n");
  EXPECT_EQ(read_available(err.first.get()), "\nlauncher\n");
}

TEST(Console, ASlowReaderHoldsNothingUpAndLearnsWhatItMissed) {
  const FdPair out = make_pipe();
  Console console(out.second.get(), out.second.get());
  const std::string line = std::string(65'535, 'x') + "\n";
  for (int i = 0; i < 100; ++i) console.write(0, false, "", line);  // 6.5 MB into a pipe nobody reads: must return
  EXPECT_FALSE(console.flush());
  std::string seen;
  while (!console.flush()) seen += read_available(out.first.get());
  console.write(0, false, "", "end\n");
  while (!console.flush()) seen += read_available(out.first.get());
  for (std::string rest = "-"; !rest.empty(); seen += rest) rest = read_available(out.first.get());
  EXPECT_THAT(seen, HasSubstr("bytes not shown"));
  EXPECT_TRUE(seen.ends_with("end\n"));
}

TEST(Console, SeveralThreadsMayWrite) {
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Console console(null.get(), null.get());
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) console.say("from the store");
  });
  for (int i = 0; i < 1000; ++i) console.write(0, false, "rank 0: ", "half\nline");
  other.join();
  EXPECT_TRUE(console.flush());
}

TEST(Console, AClosedReaderIsNoError) {
  ::signal(SIGPIPE, SIG_IGN);
  FdPair out = make_pipe();
  Console console(out.second.get(), out.second.get());
  out.first.reset();
  console.say("to nobody");
  EXPECT_TRUE(console.flush());
}

// A terminal, and what has been written to it.
struct Terminal {
  Terminal() : master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    ::grantpt(master.get());
    ::unlockpt(master.get());
    slave.reset(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    termios settings{};
    ::tcgetattr(slave.get(), &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // a newline stays one byte
    ::tcsetattr(slave.get(), TCSANOW, &settings);
  }
  std::string text() const { return read_available(master.get()); }
  UniqueFd master, slave;
};

TEST(ConsoleStatus, StandsBelowAllOtherLines) {
  const Terminal terminal;
  Console console(terminal.slave.get(), terminal.slave.get());
  console.show_status("step 1");
  EXPECT_EQ(terminal.text(), "\rstep 1\033[K");
  console.show_status("step 2");
  EXPECT_EQ(terminal.text(), "\rstep 2\033[K");
  console.write(0, false, "", "a line\n");
  console.write(1, true, "", "another\n");
  EXPECT_EQ(terminal.text(), "\r\033[Ka line\nanother\n") << "one order, and erased once";
  console.flush();
  EXPECT_EQ(terminal.text(), "\rstep 2\033[K");
  console.show_status("");
  EXPECT_EQ(terminal.text(), "\r\033[K");
  console.flush();
  EXPECT_EQ(terminal.text(), "");
}

TEST(ConsoleStatus, WaitsForTheEndOfALine) {
  const Terminal terminal;
  Console console(terminal.slave.get(), terminal.slave.get());
  console.write(0, false, "", "name? ");
  console.show_status("step 1");
  console.flush();
  EXPECT_EQ(terminal.text(), "name? ");
  console.write(0, false, "", "yes\n");
  console.flush();
  EXPECT_EQ(terminal.text(), "yes\n\rstep 1\033[K");
}

TEST(ConsoleStatus, IsNothingElsewhere) {
  const FdPair err = make_pipe();
  const Terminal terminal;
  Console console(terminal.slave.get(), err.second.get());
  console.show_status("step 1");
  console.write(0, false, "", "a line\n");
  console.flush();
  EXPECT_EQ(read_available(err.first.get()), "");
  EXPECT_EQ(terminal.text(), "a line\n");
}

TEST(ConsoleStatus, OutputInAFileHasNoneOfIt) {
  const FdPair out = make_pipe();
  const Terminal terminal;
  Console console(out.second.get(), terminal.slave.get());
  console.show_status("step 1");
  console.write(0, false, "", "a line\n");
  EXPECT_EQ(read_available(out.first.get()), "a line\n");
  EXPECT_EQ(terminal.text(), "\rstep 1\033[K");
}

TEST(ExitStatus, WordsAndShellCodes) {
  EXPECT_EQ(ExitStatus{.code = 7}.shell_code(), 7);
  EXPECT_EQ(to_string(ExitStatus{.code = 7}), "exit 7");
  EXPECT_EQ(ExitStatus{.signal = 9}.shell_code(), 137);
  // The core flag (0x80) must not leak into the code.
  EXPECT_EQ(ExitStatus::from_wait_status(0x80 | 11).shell_code(), 139);
  EXPECT_EQ(to_string(ExitStatus::from_wait_status(0x80 | 11)), "killed by signal 11 (core dumped)");
  EXPECT_TRUE(ExitStatus::from_wait_status(0).success());
}

TEST(MemoryKill, ReadsTheKernelsCounters) {
  EXPECT_EQ(counter_in("low 0\noom 3\noom_kill 2\n", "oom_kill"), 2);
  EXPECT_EQ(counter_in("oom_kill_disable 0\nunder_oom 0\noom_kill 5", "oom_kill"), 5);
  EXPECT_FALSE(counter_in("low 0\n", "oom_kill"));
  EXPECT_EQ(memory_events_file("4:memory:/job\n1:cpu:/\n"), "/sys/fs/cgroup/memory/job/memory.oom_control");
  EXPECT_EQ(memory_events_file("nonsense"), "");
}

TEST(MemoryKill, APlainKillIsNotAnOutOfMemoryKill) {
  EXPECT_FALSE(MemoryKillWatch().killed(::getpid()));
}

}  // namespace
}  // namespace trireme::proc
