#include "trireme/core/preemption.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "trireme/core/error.h"

namespace trireme {
namespace {

volatile sig_atomic_t g_calls = 0;
void count_call(int) {
  g_calls = g_calls + 1;
}

void (*handler_of(int number))(int) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action.sa_handler;
}

// Each test leaves SIGUSR2 as it was.
class PreemptionTest : public testing::Test {
 protected:
  PreemptionTest() { ::sigaction(SIGUSR2, nullptr, &before_); }
  ~PreemptionTest() override { ::sigaction(SIGUSR2, &before_, nullptr); }
  struct sigaction before_ {};
};

TEST_F(PreemptionTest, ASignalIsNotedAndDoesNotKill) {
  const PreemptionNotice notice({SIGTERM, SIGUSR2});
  EXPECT_FALSE(notice.received());
  ::raise(SIGTERM);
  EXPECT_TRUE(notice.received());
  EXPECT_TRUE(notice.received());
}

TEST_F(PreemptionTest, CtrlCOnceIsNotedTwiceEnds) {
  {
    const PreemptionNotice notice({SIGINT});
    ::raise(SIGINT);
    EXPECT_EQ(notice.signal(), SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(110));  // layers: sleep ok, because sooner is the same wish
    EXPECT_EXIT(::raise(SIGINT), testing::KilledBySignal(SIGINT), "");
  }
  const PreemptionNotice next({SIGINT});  // counts from the beginning
  ::raise(SIGINT);
  EXPECT_TRUE(next.received());
}

TEST_F(PreemptionTest, ASecondSigtermEnds) {
  const PreemptionNotice notice({SIGTERM});
  ::raise(SIGTERM);
  EXPECT_EQ(notice.signal(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(3010));  // layers: sleep ok, because sooner is the same wish
  EXPECT_EXIT(::raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");
}

// As timeout(1) does: to the process, then to its group.
TEST_F(PreemptionTest, OneWishSentTwiceIsOne) {
  const auto twice = [](int number) {
    const PreemptionNotice notice({number});
    ::raise(number);
    ::raise(number);
    ::_exit(notice.received() ? 0 : 1);
  };
  for (const int number : {SIGINT, SIGTERM}) EXPECT_EXIT(twice(number), testing::ExitedWithCode(0), "") << number;
}

TEST_F(PreemptionTest, AnOldSignalIsNotANewOne) {
  {
    const PreemptionNotice notice({SIGUSR2});
    ::raise(SIGUSR2);
  }
  EXPECT_FALSE(PreemptionNotice({SIGUSR2}).received());
}

TEST_F(PreemptionTest, WhatWasBeforeIsCalledAndPutBack) {
  ::signal(SIGUSR2, count_call);
  g_calls = 0;
  {
    const PreemptionNotice notice({SIGUSR2});
    ::raise(SIGUSR2);
    EXPECT_TRUE(notice.received());
    EXPECT_EQ(g_calls, 1);
  }
  EXPECT_EQ(handler_of(SIGUSR2), count_call);
}

TEST_F(PreemptionTest, TheLastOfSeveralPutsItBack) {
  ::signal(SIGUSR2, count_call);
  std::optional<PreemptionNotice> first(std::vector<int>{SIGUSR2});
  std::optional<PreemptionNotice> second(std::vector<int>{SIGUSR2});
  g_calls = 0;
  first.reset();
  ::raise(SIGUSR2);
  EXPECT_TRUE(second->received());
  EXPECT_EQ(g_calls, 1);
  second.reset();
  EXPECT_EQ(handler_of(SIGUSR2), count_call);
}

TEST_F(PreemptionTest, AHandlerOnTopStays) {
  {
    const PreemptionNotice notice({SIGUSR2});
    ::signal(SIGUSR2, count_call);
  }
  EXPECT_EQ(handler_of(SIGUSR2), count_call);
}

TEST_F(PreemptionTest, WhatIsIgnoredStaysIgnored) {
  ::signal(SIGUSR2, SIG_IGN);
  const PreemptionNotice notice({SIGUSR2});
  ::raise(SIGUSR2);
  EXPECT_FALSE(notice.received());
  EXPECT_EQ(handler_of(SIGUSR2), SIG_IGN);
}

TEST_F(PreemptionTest, AnyThreadMayGetTheSignal) {
  const PreemptionNotice notice({SIGUSR2});
  std::thread([] { ::raise(SIGUSR2); }).join();
  EXPECT_TRUE(notice.received());
}

TEST_F(PreemptionTest, SignalsThatCannotBeCaught) {
  for (const int number : {0, -1, SIGKILL, SIGSTOP, 1000})
    EXPECT_THROW(PreemptionNotice({SIGUSR2, number}), UsageError) << number;
  EXPECT_EQ(handler_of(SIGUSR2), before_.sa_handler);
}

}  // namespace
}  // namespace trireme
