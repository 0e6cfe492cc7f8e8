// One thing that a rank has done or reported, in the order of its end. Plain bytes: it lies in shared memory (ring.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/watch/phase.h"

namespace trireme::watch {

enum class EventKind : uint32_t {
  none,
  step,   // a step has begun
  phase,  // a phase has ended
  call,   // an operation of a group has ended
  value,  // the program has reported a number
};

struct EventRecord {
  uint64_t number = 0;  ///< among the rank's events, from 1; append() sets it
  int64_t started = 0;  ///< now_ns(); of a step or a value the same as `ended`
  int64_t ended = 0;
  int64_t step = -1;   ///< in which it ended; -1: not known; append() sets it
  uint64_t group = 0;  ///< of a call
  uint64_t call = 0;   ///< the call's number in its group
  uint64_t bytes = 0;  ///< of the call's argument
  double value = 0;    ///< of a value
  EventKind kind = EventKind::none;
  Phase phase = Phase::unknown;
  uint32_t blocking = 0;  ///< of a call: made on the main thread
  int32_t peer = -1;      ///< of a message, as a rank of the world
  char name[24] = {};     ///< of a call its operation, of a value its name
};

}  // namespace trireme::watch
