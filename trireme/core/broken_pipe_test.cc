#include "trireme/core/broken_pipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "trireme/core/fd.h"

namespace trireme {
namespace {

int write_to_nobody() {
  FdPair pipe = make_pipe();
  pipe.first.reset();
  return ::write(pipe.second.get(), "x", 1) < 0 ? errno : 0;
}

TEST(BrokenPipe, WithoutAGuardItIsTheEnd) {
  ::signal(SIGPIPE, SIG_DFL);
  EXPECT_EXIT(write_to_nobody(), ::testing::KilledBySignal(SIGPIPE), "");
}

TEST(BrokenPipe, UnderAGuardItIsAnErrorAndNothingComesLater) {
  ::signal(SIGPIPE, SIG_DFL);
  {
    const NoBrokenPipe guard;
    EXPECT_EQ(write_to_nobody(), EPIPE);
    {
      const NoBrokenPipe inner;
      EXPECT_EQ(write_to_nobody(), EPIPE);
    }
    EXPECT_EQ(write_to_nobody(), EPIPE);
  }
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(::sigismember(&mask, SIGPIPE), 0);
}

TEST(BrokenPipe, ThreadsStartedUnderAGuardAreSafeToo) {
  ::signal(SIGPIPE, SIG_DFL);
  int error = 0;
  std::thread thread;
  {
    const NoBrokenPipe guard;
    thread = std::thread([&] { error = write_to_nobody(); });
  }
  thread.join();
  EXPECT_EQ(error, EPIPE);
}

TEST(BrokenPipe, ASignalThatWasPendingBeforeStays) {
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_DFL);
        sigset_t set;
        ::sigemptyset(&set);
        ::sigaddset(&set, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
        ::raise(SIGPIPE);
        { const NoBrokenPipe guard; }
        ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
      },
      ::testing::KilledBySignal(SIGPIPE), "");
}

}  // namespace
}  // namespace trireme
