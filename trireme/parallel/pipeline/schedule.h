// In which order a rank of a pipeline works: a table, made without tensors or processes.
//
// Words
//   stage         a run of neighbouring layers. Rank r of P has the stages r, r + P, r + 2 P, …: its chunks.
//   micro-batch   a part of the batch. Each goes through all stages forward, then through all of them backward.
//
// What each schedule costs: schedule_kind.h.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/pipeline/schedule_kind.h"

namespace trireme::parallel {

struct PipelineShape {
  int ranks = 1;
  int chunks = 1;  ///< of each rank; above 1 with `interleaved` only
  int micro_batches = 1;

  int stages() const { return ranks * chunks; }
  int rank_of(int stage) const { return stage % ranks; }
};

struct Action {
  enum class Kind {
    forward,
    backward,        ///< of input and weights
    input_gradient,  ///< the two halves of a backward
    weight_gradient,
  };
  Kind kind;
  int stage;
  int micro_batch;

  bool operator==(const Action&) const = default;
};

/// "backward of micro-batch 3"
std::string describe(const Action& action);
const char* name_of(Schedule schedule);

/// table[rank]: what the rank does, one after the other.
using ScheduleTable = std::vector<std::vector<Action>>;
ScheduleTable schedule_table(Schedule schedule, const PipelineShape& shape);

/// Activations travel to the next stage and their gradients to the one before.
struct Message {
  bool gradient;
  int stage;  ///< that gets it
  int micro_batch;

  bool operator==(const Message&) const = default;
};
/// What one rank sends to another, in this order: the receiver knows it from the table, so nothing has to say what it is.
std::vector<Message> messages(const ScheduleTable& table, const PipelineShape& shape, int from, int to);

/// The most micro-batches (of any chunk) whose activations a rank of the table keeps at once.
int kept_activations(const std::vector<Action>& actions);
/// The bound of the schedule (schedule_kind.h).
int activation_bound(Schedule schedule, const PipelineShape& shape, int rank);

/// The time of the formulas, from the first forward to the last backward.
int shortest_time(Schedule schedule, const PipelineShape& shape);

}  // namespace trireme::parallel
