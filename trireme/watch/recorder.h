// The rank's side of the watch: writes what this process does into its ring (ring.h), where the launcher has given it
// one. Elsewhere nothing is recorded, and a call costs one comparison.
//
//   watch::Group group("0-1#0", ranks, /*world_size=*/2);             // while the group lives
//   const watch::Recording call(group, {.operation = "all_reduce", .number = 17});   // until the end of the scope
//   const watch::PhaseScope loading(Phase::data);                                    // report.h
//
// Thread rule: all from any thread. A child made by fork() records nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "trireme/watch/report.h"

namespace trireme::watch {

/// A group of ranks of the world.
class Group {
 public:
  Group() = default;
  Group(std::string_view name, std::span<const int> ranks, int world_size);
  ~Group();
  Group(Group&& other) noexcept;
  Group& operator=(Group&& other) noexcept;

  uint64_t id() const { return id_; }
  int place() const { return place_; }

 private:
  uint64_t id_ = 0;
  int place_ = -1;
};

/// The facts of a call. Texts are cut to the length of CallRecord's fields.
struct CallFacts {
  const char* operation = "";
  const char* dtype = "";
  const char* reduce = "";
  uint64_t number = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  uint64_t digest = 0;
  std::span<const uint64_t> sizes = {};
  size_t size_count = 0;
  int root = -1;
  int peer = -1;
};

/// A call from here to the end of the scope.
class Recording {
 public:
  Recording(const Group& group, const CallFacts& facts);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  int place_ = -1;
};

/// Calls on this thread were asked for at this time, until the end of the scope. For queues.
class EnqueuedAt {
 public:
  explicit EnqueuedAt(int64_t when);
  ~EnqueuedAt();
  EnqueuedAt(const EnqueuedAt&) = delete;
  EnqueuedAt& operator=(const EnqueuedAt&) = delete;
};

/// Counts the steps of a training that does not call set_step(). Of several counters one counts: the first of those
/// that know most.
class StepCounter {
 public:
  /// What is counted. A later source overrides an earlier one.
  enum class Source { backwards, steps };

  explicit StepCounter(Source source);
  ~StepCounter();
  StepCounter(const StepCounter&) = delete;
  StepCounter& operator=(const StepCounter&) = delete;

  /// A step begins now.
  void begin_step();
  /// For callers that see only the end of a step: the next forward or backward phase begins a step.
  void end_step();

 private:
  bool counts() const;

  const Source source_;
};

}  // namespace trireme::watch
