#include "trireme/watch/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "trireme/core/deadline.h"
#include "trireme/core/env.h"
#include "trireme/watch/recorder.h"
#include "trireme/watch/snapshot.h"

namespace trireme::watch {
namespace {

CallRecord call_number(uint64_t number) {
  CallRecord call{.group = 7, .number = number, .started = now_ns()};
  std::strcpy(call.operation, "all_reduce");
  return call;
}

TEST(Ring, TheLauncherReadsWhatTheRankWrites) {
  const UniqueFd file = make_ring_file(3);
  const auto rank = Ring::map(file.get(), Access::write);
  const auto launcher = Ring::map(file.get(), Access::read);
  ASSERT_TRUE(rank && launcher);
  EXPECT_EQ(launcher->owner(), ::getpid());
  EXPECT_EQ(launcher->rank(), 3);
  EXPECT_EQ(rank->launcher(), ::getpid());
  EXPECT_EQ(launcher->step(), -1);
  const int group = rank->start_group({.id = 7, .size = 2, .world = 1});
  const int first = rank->start_call(call_number(1), group);
  rank->end_call(first, now_ns());
  rank->start_call(call_number(2), group);
  rank->set_step(40, now_ns());
  rank->set_goal({.epoch = 2, .epochs = 3, .last_step = 90});
  rank->set_phase(Phase::save, now_ns());
  ASSERT_EQ(launcher->groups().size(), 1u);
  EXPECT_EQ(launcher->groups()[0].begun, 3u);
  ASSERT_EQ(launcher->calls().size(), 2u);
  EXPECT_FALSE(launcher->calls()[0].open());
  EXPECT_TRUE(launcher->calls()[1].open());
  EXPECT_STREQ(launcher->calls()[1].operation, "all_reduce");
  EXPECT_EQ(launcher->step(), 40);
  EXPECT_EQ(launcher->goal().epoch, 2);
  EXPECT_EQ(launcher->goal().last_step, 90);
  EXPECT_EQ(launcher->phase(), Phase::save);
}

TEST(Ring, AnOpenCallIsNotOverwritten) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  const int group = ring->start_group({.id = 7, .size = 2});
  ring->start_call(call_number(1), group);
  for (uint64_t number = 2; number < 3 * Ring::kCalls; ++number)
    ring->end_call(ring->start_call(call_number(number), group), now_ns());
  size_t open = 0;
  for (const CallRecord& call : ring->calls()) open += call.open() && call.number == 1;
  EXPECT_EQ(open, 1u);
}

TEST(Ring, ACollectiveHasBegunAlsoWithoutAFreePlace) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  const int group = ring->start_group({.id = 7, .size = 2});
  const CallRecord message{.group = 7, .peer = 1, .started = now_ns()};
  for (size_t i = 0; i < Ring::kCalls; ++i) EXPECT_GE(ring->start_call(message, group), 0);
  EXPECT_EQ(ring->start_call(call_number(5), group), -1);
  EXPECT_EQ(ring->groups().at(0).begun, 6u);
}

TEST(Ring, GroupsBeyondTheTableAreNotRecorded) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  for (size_t i = 0; i < Ring::kGroups; ++i) EXPECT_GE(ring->start_group({.id = i + 1}), 0);
  EXPECT_EQ(ring->start_group({.id = 1000}), -1);
  EXPECT_EQ(ring->start_call(call_number(1), -1), -1);
  ring->end_group(5);
  EXPECT_EQ(ring->start_group({.id = 1000}), 5);
}

TEST(Ring, AReleasedGroupStaysReadable) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  const int place = ring->start_group({.id = 7});
  ring->start_call(call_number(4), place);
  ring->end_group(place);
  EXPECT_NE(ring->start_group({.id = 8}), place);
  ASSERT_EQ(ring->groups().size(), 2u);
  EXPECT_EQ(ring->groups()[0].begun, 5u);
}

TEST(Ring, OtherFilesAreNotRings) {
  EXPECT_EQ(Ring::map(-1, Access::read), nullptr);
  EXPECT_EQ(Ring::map(0, Access::write), nullptr);
  EXPECT_EQ(Ring::map(make_memory_file("other", "text").get(), Access::read), nullptr);
  const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC));
  const UniqueFd file = make_ring_file(3);
  ASSERT_EQ(::ftruncate(unsealed.get(), ::lseek(file.get(), 0, SEEK_END)), 0);
  EXPECT_EQ(Ring::map(unsealed.get(), Access::read), nullptr);
  EXPECT_NE(::ftruncate(file.get(), 1), 0) << "a rank could make its launcher's reads fail";
}

TEST(Ring, OnlyOneProcessWrites) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(Ring::map(file.get(), Access::write) ? 1 : 0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Whatever a rank writes, the reader returns text that ends and values in range.
TEST(Ring, GarbageDoesNotHurtTheReader) {
  const UniqueFd file = make_ring_file(3);
  const auto size = static_cast<size_t>(::lseek(file.get(), 0, SEEK_END));
  const auto ring = Ring::map(file.get(), Access::read);
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(round % 5 == 0 ? 0xff : random());
    ASSERT_EQ(::pwrite(file.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    const RankSnapshot rank = take_snapshot(*ring, now_ns(), 1000);
    for (const Call& call : rank.calls) EXPECT_LE(describe(call).size(), 1000u);
    EXPECT_EQ(snapshots_from_json(to_json({rank})).size(), 1u);
    for (const EventRecord& event : ring->events_since(0).events) {
      EXPECT_LT(std::strlen(event.name), sizeof event.name);
      EXPECT_LE(event.kind, EventKind::value);
    }
  }
}

TEST(Ring, ThreadsWriteAtOnce) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  const int group = ring->start_group({.id = 7, .size = 2});
  std::atomic<bool> done = false;
  std::thread reader([&] {
    const auto view = Ring::map(file.get(), Access::read);
    while (!done)
      for (const CallRecord& call : view->calls()) EXPECT_STREQ(call.operation, "all_reduce");
  });
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i)
    writers.emplace_back([&] {
      for (uint64_t number = 1; number < 5000; ++number)
        ring->end_call(ring->start_call(call_number(number), group), now_ns());
    });
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  for (const CallRecord& call : ring->calls()) EXPECT_FALSE(call.open());
}

EventRecord value_event(double value) {
  EventRecord event{.value = value, .kind = EventKind::value};
  std::strcpy(event.name, "loss");
  return event;
}

TEST(Ring, EventsAreReadOnceAndInOrder) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  EXPECT_TRUE(ring->events_since(0).events.empty());
  CallRecord call = call_number(17);
  call.bytes = 4000;
  call.blocking = 1;
  ring->set_step(40, 100);
  ring->end_call(ring->start_call(call, ring->start_group({.id = 7, .size = 2})), call.started + 5);
  ring->append(value_event(0.25));
  const NewEvents first = ring->events_since(0);
  ASSERT_EQ(first.events.size(), 3u);
  EXPECT_EQ(first.events[0].kind, EventKind::step);
  EXPECT_EQ(first.events[0].step, 40);
  EXPECT_EQ(first.events[1].kind, EventKind::call);
  EXPECT_STREQ(first.events[1].name, "all_reduce");
  EXPECT_EQ(first.events[1].call, 17u);
  EXPECT_EQ(first.events[1].bytes, 4000u);
  EXPECT_EQ(first.events[1].blocking, 1u);
  EXPECT_EQ(first.events[1].ended - first.events[1].started, 5);
  EXPECT_EQ(first.events[2].step, 40);
  EXPECT_EQ(first.events[2].value, 0.25);
  EXPECT_EQ(first.lost, 0u);
  ring->append(value_event(0.5));
  const NewEvents second = ring->events_since(first.next);
  ASSERT_EQ(second.events.size(), 1u);
  EXPECT_EQ(second.events[0].number, 4u);
}

TEST(Ring, AReaderThatComesLateKnowsHowManyEventsItLost) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  for (size_t i = 0; i < Ring::kEvents + 10; ++i) ring->append(value_event(static_cast<double>(i)));
  const NewEvents found = ring->events_since(3);
  EXPECT_EQ(found.lost, 7u);
  ASSERT_EQ(found.events.size(), Ring::kEvents);
  EXPECT_EQ(found.events.front().value, 10);
  EXPECT_EQ(ring->events_since(found.next + 1000).next, found.next) << "a cursor of another ring";
}

TEST(Ring, SamplesAreCounted) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  ring->add_samples(32);
  ring->add_samples(8);
  EXPECT_EQ(ring->samples(), 40);
}

// A step of a training makes about ten events and takes milliseconds. The bound holds with sanitizers and on a loaded
// machine; without them an event takes 40 ns.
TEST(Ring, EventsCostFarLessThanAStep) {
  constexpr int kEvents = 100'000;
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 5; ++round) {
    const int64_t start = now_ns();
    for (int i = 0; i < kEvents; ++i) ring->append(value_event(i));
    best = std::min(best, (now_ns() - start) / kEvents);
  }
  RecordProperty("nanoseconds", static_cast<int>(best));
  EXPECT_LT(best, 5'000);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TRIREME_TSAN
#endif
#endif

#ifndef TRIREME_TSAN  // the thread sanitizer makes system calls of its own
// The kernel kills a process in this mode for any call but read, write and exit.
TEST(Ring, AnEventMakesNoSystemCall) {
  const UniqueFd file = make_ring_file(3);
  const auto ring = Ring::map(file.get(), Access::write);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
    for (int i = 0; i < 10'000; ++i) ring->append(value_event(i));
    ring->set_step(7, 1);
    ring->add_samples(1);
    ::syscall(SYS_exit, 0);  // this thread: a sanitizer may have another one
  }
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  int status = 0;
  pid_t ended = 0;
  while (ended == 0 && ring->step() != 7 && !deadline.passed()) ended = ::waitpid(child, &status, WNOHANG);
  ::kill(child, SIGKILL);
  if (ended == 0) ::waitpid(child, &status, 0);
  EXPECT_EQ(ring->step(), 7) << "the child came through";
}
#endif

TEST(Recorder, WithoutARingNothingIsRecorded) {
  const Group group("0-1#0", std::vector<int>{0, 1}, 2);
  EXPECT_EQ(group.place(), -1);
  const Recording call(group, {.operation = "barrier"});
  const PhaseScope phase(Phase::data);
  set_step(1);
  report("loss", 1);
  count_samples(1);
}

// Runs a case of this program in a child, which has the ring: a process looks for its ring once. Returns its pid.
pid_t run_with_ring(const UniqueFd& ring, const std::string& name) {
  const UniqueFd inherited(::dup(ring.get()));
  const std::string filter = "--gtest_filter=Recorder." + name;
  const pid_t child = ::fork();
  if (child == 0) {
    env::set("TRIREME_WATCH_FD", std::to_string(inherited.get()));
    ::execl("/proc/self/exe", "watch_test", filter.c_str(), nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return child;
}

TEST(Recorder, RecordsIntoTheRingOfTheEnvironment) {
  const UniqueFd file = make_ring_file(3);
  const pid_t child = run_with_ring(file, "IsARankWithARing");
  const auto ring = Ring::map(file.get(), Access::read);
  EXPECT_EQ(ring->owner(), child);
  const RankSnapshot rank = take_snapshot(*ring, now_ns(), 1000);
  EXPECT_EQ(rank.step, 12);
  EXPECT_EQ(rank.phase, Phase::data);
  ASSERT_EQ(rank.groups.size(), 1u);
  EXPECT_EQ(rank.groups[0].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(rank.groups[0].again, 2u);
  EXPECT_EQ(rank.groups[0].begun, 18u);
  ASSERT_EQ(rank.calls.size(), 1u);
  EXPECT_EQ(describe(rank.calls[0]), "all_reduce #17 float[2, 3] sum");
  EXPECT_TRUE(rank.calls[0].open);
  EXPECT_TRUE(rank.calls[0].blocking);
  const NewEvents found = ring->events_since(0);
  ASSERT_EQ(found.events.size(), 3u);
  EXPECT_EQ(found.events[1].kind, EventKind::value);
  EXPECT_STREQ(found.events[1].name, "a name that has many by");
  EXPECT_EQ(found.events[1].value, 0.5);
  EXPECT_EQ(found.events[1].step, 12);
  EXPECT_EQ(found.events[2].kind, EventKind::phase);
  EXPECT_EQ(found.events[2].phase, Phase::forward);
  EXPECT_EQ(ring->samples(), 64);
}

// The child of the test above.
TEST(Recorder, IsARankWithARing) {
  if (!env::get("TRIREME_WATCH_FD")) return;
  const Group group("0-2#2", std::vector<int>{0, 2}, 3);
  const uint64_t sizes[] = {2, 3};
  const PhaseScope phase(Phase::data);
  set_step(12);
  report("a name that has many bytes more than fit", 0.5);
  count_samples(64);
  { const PhaseScope inner(Phase::forward); }
  const Recording call(group, {.operation = "all_reduce",
                               .dtype = "float",
                               .reduce = "sum",
                               .number = 17,
                               .elements = 6,
                               .sizes = sizes,
                               .size_count = 2});
  const pid_t child = ::fork();
  if (child == 0) {
    const Recording not_recorded(group, {.operation = "barrier", .number = 18});
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ::_exit(0);  // in the middle of the call
}

TEST(Recorder, CountsTheStepsOfALoopThatDoesNot) {
  const UniqueFd file = make_ring_file(3);
  run_with_ring(file, "CountsStepsInARing");
  std::vector<int64_t> steps, values;
  std::vector<Phase> phases;
  for (const EventRecord& event : Ring::map(file.get(), Access::read)->events_since(0).events) {
    if (event.kind == EventKind::step) steps.push_back(event.step);
    if (event.kind == EventKind::phase) phases.push_back(event.phase);
    if (event.kind == EventKind::value) values.push_back(event.step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 40, 41}));
  EXPECT_EQ(values, (std::vector<int64_t>{-1, 1, 2, 4, 41}));
  EXPECT_EQ(phases, (std::vector<Phase>{Phase::forward, Phase::backward, Phase::data, Phase::forward, Phase::forward}));
}

// The child of the test above.
TEST(Recorder, CountsStepsInARing) {
  if (!env::get("TRIREME_WATCH_FD")) return;
  const auto spend = [](Phase phase) { const PhaseScope scope(phase); };
  StepCounter model(StepCounter::Source::backwards), other(StepCounter::Source::backwards);
  report("before the first step", 0);
  {
    const PhaseScope forward(Phase::forward);
    spend(Phase::forward);  // adds nothing
  }
  spend(Phase::backward);
  model.end_step();
  other.end_step();
  spend(Phase::data);
  report("the first step ends with a forward", 1);
  spend(Phase::forward);
  report("the second", 2);
  {
    StepCounter step(StepCounter::Source::steps);
    step.begin_step();
    model.end_step();
    step.begin_step();
    spend(Phase::forward);
    report("a Step knows more than its model", 4);
  }
  set_step(40);
  other.end_step();
  StepCounter(StepCounter::Source::steps).begin_step();
  set_step(41);
  report("the program knows most", 41);
}

}  // namespace
}  // namespace trireme::watch
