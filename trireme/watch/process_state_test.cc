#include "trireme/watch/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace trireme::watch {
namespace {

TEST(ProcessState, Letters) {
  EXPECT_EQ(parse_process_state("12 (train) R 1", ""), ProcessState::running);
  EXPECT_EQ(parse_process_state("12 (train) S 1", ""), ProcessState::sleeping);
  EXPECT_EQ(parse_process_state("12 (train) D 1", ""), ProcessState::disk);
  EXPECT_EQ(parse_process_state("12 (train) T 1", "TracerPid:\t0\n"), ProcessState::stopped);
  EXPECT_EQ(parse_process_state("12 (train) t 1", ""), ProcessState::traced);
  EXPECT_EQ(parse_process_state("12 (a) T (b) S 1", ""), ProcessState::sleeping) << "a name with parentheses";
  EXPECT_EQ(parse_process_state("12 (train) S 1", "Name:\tx\nTracerPid:\t77\nUid:\t0\n"), ProcessState::traced);
  EXPECT_EQ(parse_process_state("", ""), ProcessState::unknown);
  EXPECT_EQ(parse_process_state("12 (train)", ""), ProcessState::unknown);
}

TEST(ProcessState, OfAProcess) {
  EXPECT_EQ(read_process_state(::getpid()), ProcessState::running);
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_EQ(read_process_state(child), ProcessState::stopped);
  EXPECT_TRUE(descends_from(child, ::getpid()));
  EXPECT_TRUE(descends_from(child, child));
  EXPECT_FALSE(descends_from(::getpid(), child));
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  EXPECT_EQ(read_process_state(child), ProcessState::unknown);
}

TEST(ProcessState, AProcessMayEndWhileItIsRead) {
  std::atomic<pid_t> watched = ::getpid();
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) read_process_state(watched);
  });
  for (int turn = 0; turn < 500; ++turn) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    watched = child;
    ::waitpid(child, nullptr, 0);
  }
  done = true;
  reader.join();
}

}  // namespace
}  // namespace trireme::watch
