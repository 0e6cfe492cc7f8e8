#include "trireme/parallel/pipeline/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace trireme::parallel {
namespace {

using ActionKind = Action::Kind;

// Chunk and micro-batch of each forward, or of each backward, of a rank.
using WorkList = std::vector<std::pair<int, int>>;

// Sizes of the rounds of `interleaved`: at least one micro-batch for each rank, as equal as can be.
std::vector<int> rounds_of(const PipelineShape& shape) {
  const int rounds = std::max(1, shape.micro_batches / shape.ranks);
  std::vector<int> sizes;
  for (int i = 0; i < rounds; ++i)
    sizes.push_back(shape.micro_batches / rounds + (i < shape.micro_batches % rounds ? 1 : 0));
  return sizes;
}

// A round goes through chunk after chunk; backward begins with the last one.
WorkList by_rounds(const PipelineShape& shape, bool backward) {
  WorkList work;
  int first = 0;
  for (const int size : rounds_of(shape)) {
    for (int i = 0; i < shape.chunks; ++i)
      for (int batch = first; batch < first + size; ++batch)
        work.emplace_back(backward ? shape.chunks - 1 - i : i, batch);
    first += size;
  }
  return work;
}

// How many forwards a rank makes before its first backward, beside the one that comes right before it.
int warm_up(Schedule schedule, const PipelineShape& shape, int rank) {
  const int all = shape.chunks * shape.micro_batches, behind = shape.ranks - 1 - rank;
  switch (schedule) {
    case Schedule::fill_drain:
      return all;
    case Schedule::interleaved:
      if (shape.chunks > 1) return std::min(all, (shape.chunks - 1) * rounds_of(shape)[0] + 2 * behind);
      [[fallthrough]];
    default:
      return std::min(all, behind);
  }
}

class RankActions {
 public:
  RankActions(Schedule schedule, const PipelineShape& shape, int rank)
      : schedule_(schedule),
        shape_(shape),
        rank_(rank),
        forwards_(by_rounds(shape, false)),
        backwards_(by_rounds(shape, true)) {}

  std::vector<Action> actions() {
    for (int left = warm_up(schedule_, shape_, rank_); left > 0; --left) forward();
    while (next_forward_ < forwards_.size()) {
      forward();
      backward();
    }
    while (next_backward_ < backwards_.size()) backward();
    while (next_weight_ < next_backward_ && schedule_ == Schedule::zero_bubble) weight();
    return std::move(actions_);
  }

 private:
  void add(ActionKind kind, const std::pair<int, int>& work) {
    actions_.push_back({kind, work.first * shape_.ranks + rank_, work.second});
  }
  void forward() { add(ActionKind::forward, forwards_[next_forward_++]); }
  void weight() { add(ActionKind::weight_gradient, backwards_[next_weight_++]); }
  // The later a rank stands, the earlier its input gradients are waited for: its weight gradients come later.
  void backward() {
    const bool split = schedule_ == Schedule::zero_bubble;
    add(split ? ActionKind::input_gradient : ActionKind::backward, backwards_[next_backward_++]);
    if (split && next_backward_ - next_weight_ > static_cast<size_t>(rank_)) weight();
  }

  const Schedule schedule_;
  const PipelineShape shape_;
  const int rank_;
  const WorkList forwards_, backwards_;
  size_t next_forward_ = 0, next_backward_ = 0, next_weight_ = 0;
  std::vector<Action> actions_;
};

}  // namespace

std::string describe(const Action& action) {
  const char* what = action.kind == ActionKind::forward          ? "forward"
                     : action.kind == ActionKind::backward       ? "backward"
                     : action.kind == ActionKind::input_gradient ? "backward to the input"
                                                                 : "backward to the weights";
  return fmt::format("{} of micro-batch {}", what, action.micro_batch);
}

const char* name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::fill_drain:
      return "fill_drain";
    case Schedule::one_f_one_b:
      return "one_f_one_b";
    case Schedule::interleaved:
      return "interleaved";
    case Schedule::zero_bubble:
      return "zero_bubble";
  }
  return "unknown";
}

ScheduleTable schedule_table(Schedule schedule, const PipelineShape& shape) {
  ScheduleTable table;
  for (int rank = 0; rank < shape.ranks; ++rank) table.push_back(RankActions(schedule, shape, rank).actions());
  return table;
}

std::vector<Message> messages(const ScheduleTable& table, const PipelineShape& shape, int from, int to) {
  std::vector<Message> sent;
  for (const Action& action : table[static_cast<size_t>(from)]) {
    if (action.kind == ActionKind::weight_gradient) continue;
    const bool gradient = action.kind != ActionKind::forward;
    const int stage = action.stage + (gradient ? -1 : 1);
    if (stage >= 0 && stage < shape.stages() && shape.rank_of(stage) == to)
      sent.push_back({gradient, stage, action.micro_batch});
  }
  return sent;
}

int kept_activations(const std::vector<Action>& actions) {
  int kept = 0, most = 0;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::forward) most = std::max(most, ++kept);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::weight_gradient) --kept;
  }
  return most;
}

int activation_bound(Schedule schedule, const PipelineShape& shape, int rank) {
  const int all = shape.chunks * shape.micro_batches;
  if (schedule == Schedule::zero_bubble) return std::min(all, shape.ranks);
  return std::min(all, warm_up(schedule, shape, rank) + 1);
}

int shortest_time(Schedule schedule, const PipelineShape& shape) {
  const int ranks = shape.ranks, batches = shape.micro_batches;
  const int more = std::max(ranks, batches), fewer = std::min(ranks, batches);
  if (schedule == Schedule::zero_bubble) return 2 * batches + ranks - 1 + more;
  if (schedule == Schedule::interleaved) return 3 * (shape.chunks * more + fewer - 1);
  return 3 * (batches + ranks - 1);
}

}  // namespace trireme::parallel
