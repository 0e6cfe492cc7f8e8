#include "trireme/launch/live/rank_history.h"

#include <gtest/gtest.h>

#include <cstring>

namespace trireme::launch {
namespace {

using watch::EventKind;
using watch::EventRecord;
using watch::Phase;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1000 * kMs;

class RankHistoryTest : public testing::Test {
 protected:
  void step(int64_t number, int64_t at) {
    add({.started = at, .ended = at, .step = number, .kind = EventKind::step});
    step_ = number;
  }
  void phase(Phase what, int64_t from, int64_t to) {
    add({.started = from, .ended = to, .step = step_, .kind = EventKind::phase, .phase = what});
  }
  void call(const char* name, int64_t from, int64_t to, bool blocking, uint64_t bytes = 0) {
    EventRecord event{.started = from, .ended = to, .step = step_, .bytes = bytes, .kind = EventKind::call};
    event.blocking = blocking ? 1 : 0;
    std::strcpy(event.name, name);
    add(event);
  }
  void value(const char* name, double number, int64_t at) {
    EventRecord event{.started = at, .ended = at, .step = step_, .value = number, .kind = EventKind::value};
    std::strcpy(event.name, name);
    add(event);
  }
  void add(const EventRecord& event) { history_.take({.events = {event}, .next = 0, .lost = 0}); }

  RankHistory history_{kStart, StepRange{2, 4}};
  int64_t step_ = -1;
};

TEST_F(RankHistoryTest, WhereTheTimeGoes) {
  phase(Phase::data, kStart, kStart + 20 * kMs);
  phase(Phase::forward, kStart + 20 * kMs, kStart + 60 * kMs);
  call("all_reduce", kStart + 30 * kMs, kStart + 70 * kMs, false);
  call("barrier", kStart + 60 * kMs, kStart + 70 * kMs, true);
  const Shares shares = history_.shares(kStart + 100 * kMs, {});
  EXPECT_NEAR(shares.data, 0.2, 1e-9);
  EXPECT_NEAR(shares.communication, 0.1, 1e-9);
  EXPECT_NEAR(shares.compute, 0.7, 1e-9);
  EXPECT_NEAR(shares.background, 0.4, 1e-9);
}

TEST_F(RankHistoryTest, OwnWorkOfAStepByPhase) {
  EXPECT_LT(history_.phase_times(kStart).data, 0) << "not known";
  for (int64_t i = 0; i <= 4; ++i) {
    const int64_t begin = kStart + i * 100 * kMs;
    step(i, begin);
    phase(Phase::data, begin, begin + 20 * kMs);
    phase(Phase::forward, begin + 20 * kMs, begin + 50 * kMs);
    call("all_reduce", begin + 60 * kMs, begin + 80 * kMs, false);
    phase(Phase::backward, begin + 50 * kMs, begin + 90 * kMs);
  }
  const PhaseTimes times = history_.phase_times(kStart + 500 * kMs);
  EXPECT_NEAR(times.data, 20, 1e-9);
  EXPECT_NEAR(times.forward, 30, 1e-9);
  EXPECT_NEAR(times.backward, 20, 1e-9) << "20 of 40 ms were in an operation";
  EXPECT_NEAR(times.optimizer, 0, 1e-9);
  phase(Phase::evaluation, kStart + 300 * kMs, kStart + 310 * kMs);
  EXPECT_LT(history_.phase_times(kStart + 500 * kMs).forward, 0) << "an evaluation is no part of a step";
}

TEST_F(RankHistoryTest, WhatHasNotEndedCounts) {
  phase(Phase::forward, kStart, kStart + 10 * kMs);
  const Span open{
      .kind = Span::Kind::call, .started = kStart + 10 * kMs, .ended = kStart + 100 * kMs, .blocking = true};
  EXPECT_NEAR(history_.shares(kStart + 100 * kMs, {open}).communication, 0.9, 1e-9);
}

TEST_F(RankHistoryTest, OverlapsAreCountedOnce) {
  call("send", kStart, kStart + 60 * kMs, true);
  call("recv", kStart + 20 * kMs, kStart + 40 * kMs, true);
  call("recv", kStart + 50 * kMs, kStart + 80 * kMs, true);
  EXPECT_NEAR(history_.shares(kStart + 100 * kMs, {}).communication, 0.8, 1e-9);
}

TEST_F(RankHistoryTest, Speed) {
  EXPECT_FALSE(history_.steps_per_second(kStart));
  for (int64_t i = 0; i <= 20; ++i) step(i, kStart + i * 50 * kMs);
  EXPECT_NEAR(*history_.steps_per_second(kStart + 1040 * kMs), 20, 1e-6);
  EXPECT_NEAR(*history_.steps_per_second(kStart + 5000 * kMs), 4, 1e-6) << "a silence counts";
  step(3, kStart + 6000 * kMs);
  EXPECT_FALSE(history_.steps_per_second(kStart + 6000 * kMs)) << "from a checkpoint";
}

TEST_F(RankHistoryTest, OperationsAndValues) {
  call("all_reduce", kStart, kStart + 4 * kMs, false, 4000);
  call("all_reduce", kStart, kStart + 2 * kMs, false, 2000);
  step(7, kStart);
  value("loss", 0.5, kStart + 1500 * kMs);
  const OperationTotals& totals = history_.operations().at("all_reduce");
  EXPECT_EQ(totals.count, 2u);
  EXPECT_EQ(totals.bytes, 6000u);
  EXPECT_NEAR(totals.seconds, 0.006, 1e-9);
  const auto point = history_.curves().at("loss").newest();
  EXPECT_EQ(point->step, 7);
  EXPECT_EQ(point->value, 0.5);
  EXPECT_NEAR(point->seconds, 1.5, 1e-9);
}

TEST_F(RankHistoryTest, NamesAndSpansAreBounded) {
  for (int i = 0; i < 1000; ++i) {
    value(("value" + std::to_string(i)).c_str(), i, kStart);
    call(("call" + std::to_string(i)).c_str(), kStart, kStart, true);
  }
  EXPECT_EQ(history_.curves().size(), RankHistory::kMaxNames);
  EXPECT_EQ(history_.operations().size(), RankHistory::kMaxNames);
  for (size_t i = 0; i < 2 * RankHistory::kMaxSpans; ++i) phase(Phase::data, kStart, kStart);
  EXPECT_EQ(history_.spans().size(), RankHistory::kMaxSpans);
}

TEST_F(RankHistoryTest, TheTracedSteps) {
  for (int64_t i = 1; i <= 3; ++i) {
    step(i, kStart + i * kMs);
    phase(Phase::forward, kStart + i * kMs, kStart + i * kMs + 1);
  }
  EXPECT_FALSE(history_.trace_complete());
  step(4, kStart + 4 * kMs);
  EXPECT_TRUE(history_.trace_complete());
  ASSERT_EQ(history_.traced().size(), 4u);
  EXPECT_EQ(history_.traced().front().step, 2);
  EXPECT_EQ(history_.traced().back().step, 3);
}

TEST_F(RankHistoryTest, ATraceIsBoundedAndCountsTheRest) {
  step(2, kStart);
  for (size_t i = 0; i < RankHistory::kMaxTraced + 6; ++i) phase(Phase::data, kStart, kStart);
  EXPECT_EQ(history_.traced().size(), RankHistory::kMaxTraced);
  EXPECT_EQ(history_.untraced(), 7u) << "with the step itself";
}

}  // namespace
}  // namespace trireme::launch
