#include "trireme/launch/hang_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "trireme/core/log.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kWorld = 1;

// A child that does nothing, as rank 1.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    for (;;) ::pause();
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void stop() {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  void trace() {
    ::ptrace(PTRACE_SEIZE, pid_, nullptr, nullptr);
    ::ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  int pid() const { return pid_; }

 private:
  const pid_t pid_;
};

// Rank 0 is this process, which waits in all_reduce #1 for rank 1.
class HangWatchTest : public testing::Test {
 protected:
  void wait_for_rank_1() {
    if (!rank_) {
      rank_ = watch::Ring::map(rings_->fd(0), watch::Access::write);
      group_ = rank_->start_group({.id = kWorld, .size = 2, .world = 1});
    }
    watch::CallRecord call{.group = kWorld, .number = ++calls_, .blocking = 1};
    std::strcpy(call.operation, "all_reduce");
    call.started = std::chrono::nanoseconds(now_.time_since_epoch()).count();
    place_ = rank_->start_call(call, group_);
  }
  void give_up() { rank_->end_call(place_, watch::now_ns()); }

  // Looks once a second of a clock that the test moves.
  std::optional<ProvenHang> look_for(std::chrono::seconds time) {
    for (const auto end = now_ + time; now_ < end; now_ += 1s) {
      watch_.look({{.pid = ::getpid()}, {.pid = child_.pid()}}, now_);
      if (auto hang = watch_.take_proven()) return hang;
    }
    return std::nullopt;
  }

  bool said(const std::string& part) const { return log_.find(part) != std::string::npos; }

  std::unique_ptr<watch::Ring> rank_;
  int group_ = -1, place_ = -1;
  uint64_t calls_ = 0;
  std::string log_;
  LogSink before_ = set_log_sink([this](LogLevel, std::string_view text) { log_ += std::string(text) + "\n"; });
  Child child_;
  std::shared_ptr<const RankRings> rings_ = RankRings::make({0, 1});
  HangWatch watch_{{.timeout = 60s, .rings = rings_, .group_timeout = 8s}};
  Clock::time_point now_ = Clock::now();

  void TearDown() override { set_log_sink(before_); }
};

TEST_F(HangWatchTest, AStoppedRankEndsTheJob) {
  wait_for_rank_1();
  child_.stop();
  EXPECT_FALSE(look_for(58s));
  EXPECT_TRUE(said("rank 0 waits in all_reduce #1 of group 0 since 10 s for rank 1 (stopped)")) << log_;
  const auto hang = look_for(6s);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->worker, 1u);
  EXPECT_TRUE(hang->fault.starts_with("is stopped while rank 0 waits for it in all_reduce #1")) << hang->fault;
  EXPECT_FALSE(look_for(100s)) << "told once";
}

TEST_F(HangWatchTest, TheTimeInWhichTheLauncherWasStoppedDoesNotCount) {
  wait_for_rank_1();
  child_.stop();
  EXPECT_FALSE(look_for(5s));
  now_ += 300s;
  EXPECT_FALSE(look_for(58s));
  EXPECT_TRUE(look_for(10s));
}

TEST_F(HangWatchTest, ADebuggedRankDoesNotEndTheJob) {
  wait_for_rank_1();
  child_.trace();
  EXPECT_FALSE(look_for(300s));
  EXPECT_TRUE(said("for rank 1 (in a debugger)")) << log_;
  EXPECT_TRUE(said("The job is not ended.")) << log_;
}

TEST_F(HangWatchTest, LinesComeAtGrowingIntervals) {
  wait_for_rank_1();
  child_.trace();
  look_for(600s);
  size_t lines = 0;
  for (size_t at = log_.find("\nrank 0 waits"); at != std::string::npos; at = log_.find("\nrank 0 waits", at + 1))
    ++lines;
  EXPECT_LE(lines, 5u) << log_;
}

TEST_F(HangWatchTest, ANewHangIsSaidAtOnce) {
  wait_for_rank_1();
  child_.trace();
  look_for(500s);
  give_up();
  look_for(650s);
  log_.clear();
  wait_for_rank_1();
  look_for(15s);
  EXPECT_TRUE(said("rank 0 waits in all_reduce #2")) << log_;
}

TEST_F(HangWatchTest, TheBlameForARankThatGaveUp) {
  EXPECT_FALSE(watch_.blame_for(0, now_));
  wait_for_rank_1();
  look_for(5s);
  EXPECT_FALSE(watch_.blame_for(0, now_)) << "it may wait for 8 s: something else has ended this wait";
  look_for(3s);
  give_up();
  look_for(2s);
  const auto verdict = watch_.blame_for(0, now_);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->culprit, 1);
  EXPECT_TRUE(verdict->fault.find("while rank 0 waits for it in all_reduce #1") != std::string::npos) << verdict->fault;
  EXPECT_FALSE(watch_.blame_for(1, now_)) << "the culprit itself";
  EXPECT_FALSE(watch_.blame_for(2, now_)) << "it did not wait";
  EXPECT_FALSE(watch_.blame_for(0, now_ + 60s)) << "long ago";
}

TEST_F(HangWatchTest, NothingIsSaidAboutRanksThatDoNotWait) {
  child_.stop();
  EXPECT_FALSE(look_for(300s));
  EXPECT_EQ(log_, "");
}

TEST(HangWatch, ShortTimesLeaveTheLauncherAsleep) {
  HangWatch watch({.timeout = 3ms, .rings = RankRings::make({0}), .group_timeout = 3ms});
  const auto later = Clock::now() + 1h;
  watch.look({{.pid = ::getpid()}}, later);
  EXPECT_GT(watch.next().time(), later);
}

TEST(HangWatch, Off) {
  HangWatch watch({.timeout = 0s, .rings = RankRings::make({0, 1})});
  EXPECT_FALSE(watch.on());
  watch.look({}, Clock::now());
  EXPECT_TRUE(watch.next().is_never());
}

}  // namespace
}  // namespace trireme::launch
