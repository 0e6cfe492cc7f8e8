// The tables of every pipeline of up to 8 ranks, 32 micro-batches and 3 chunks.
#include "trireme/parallel/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

namespace trireme::parallel {
namespace {

using Kind = Action::Kind;

struct Pipe {
  Schedule schedule;
  PipelineShape shape;
  ScheduleTable table = schedule_table(schedule, shape);
};

std::string text_of(const Pipe& pipe) {
  return std::string(name_of(pipe.schedule)) + ", ranks " + std::to_string(pipe.shape.ranks) + ", chunks " +
         std::to_string(pipe.shape.chunks) + ", micro-batches " + std::to_string(pipe.shape.micro_batches);
}

void for_each_pipe(const std::function<void(const Pipe&)>& check) {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int batches = 1; batches <= 32; ++batches) {
      for (const Schedule schedule : {Schedule::fill_drain, Schedule::one_f_one_b, Schedule::zero_bubble})
        check({schedule, {.ranks = ranks, .chunks = 1, .micro_batches = batches}});
      for (int chunks = 1; chunks <= 3; ++chunks)
        check({Schedule::interleaved, {.ranks = ranks, .chunks = chunks, .micro_batches = batches}});
    }
}

using Key = std::tuple<Kind, int, int>;
Key key_of(const Action& action) {
  return {action.kind, action.stage, action.micro_batch};
}

// What must be done before, wherever.
std::vector<Key> needs_of(const Action& action, const PipelineShape& shape) {
  const auto [kind, stage, batch] = action;
  if (kind == Kind::weight_gradient) return {{Kind::input_gradient, stage, batch}};
  std::vector<Key> needs;
  if (kind == Kind::forward) {
    if (stage > 0) needs.push_back({Kind::forward, stage - 1, batch});
    return needs;
  }
  needs.push_back({Kind::forward, stage, batch});
  if (stage + 1 < shape.stages()) needs.push_back({kind, stage + 1, batch});
  return needs;
}

// A rank begins an action when it has ended the one before and all that the action needs is there; 0: never ends.
int time_of(const Pipe& pipe) {
  std::map<Key, int> ended;
  std::vector<size_t> next(pipe.table.size(), 0);
  std::vector<int> clock(pipe.table.size(), 0);
  const auto step = [&](size_t rank) {
    if (next[rank] == pipe.table[rank].size()) return false;
    const Action& action = pipe.table[rank][next[rank]];
    int begin = clock[rank];
    for (const Key& need : needs_of(action, pipe.shape)) {
      const auto found = ended.find(need);
      if (found == ended.end()) return false;
      begin = std::max(begin, found->second);
    }
    clock[rank] = begin + (action.kind == Kind::backward ? 2 : 1);
    ended[key_of(action)] = clock[rank];
    ++next[rank];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < pipe.table.size(); ++rank)
      while (step(rank)) moved = true;
  }
  for (size_t rank = 0; rank < pipe.table.size(); ++rank)
    if (next[rank] != pipe.table[rank].size()) return 0;
  return *std::max_element(clock.begin(), clock.end());
}

TEST(Schedule, EveryActionOnceOnItsRank) {
  for_each_pipe([](const Pipe& pipe) {
    SCOPED_TRACE(text_of(pipe));
    std::set<Key> all;
    for (int rank = 0; rank < pipe.shape.ranks; ++rank)
      for (const Action& action : pipe.table[static_cast<size_t>(rank)]) {
        ASSERT_EQ(pipe.shape.rank_of(action.stage), rank);
        ASSERT_TRUE(action.micro_batch >= 0 && action.micro_batch < pipe.shape.micro_batches);
        ASSERT_TRUE(action.stage >= 0 && action.stage < pipe.shape.stages());
        ASSERT_EQ(action.kind == Kind::backward || action.kind == Kind::forward,
                  pipe.schedule != Schedule::zero_bubble || action.kind == Kind::forward);
        ASSERT_TRUE(all.insert(key_of(action)).second) << describe(action) << " twice";
      }
    const int kinds = pipe.schedule == Schedule::zero_bubble ? 3 : 2;
    ASSERT_EQ(static_cast<int>(all.size()), kinds * pipe.shape.stages() * pipe.shape.micro_batches);
  });
}

TEST(Schedule, NoDeadlockAndTheTimeOfTheFormula) {
  for_each_pipe(
      [](const Pipe& pipe) { ASSERT_EQ(time_of(pipe), shortest_time(pipe.schedule, pipe.shape)) << text_of(pipe); });
}

TEST(Schedule, BubbleShares) {
  const auto bubble = [](Schedule schedule, const PipelineShape& shape) {
    return 1.0 - 3.0 * shape.chunks * shape.micro_batches / shortest_time(schedule, shape);
  };
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int batches = ranks; batches <= 32; ++batches)
      for (int chunks = 1; chunks <= 3; ++chunks) {
        const PipelineShape one{.ranks = ranks, .chunks = 1, .micro_batches = batches};
        const PipelineShape several{.ranks = ranks, .chunks = chunks, .micro_batches = batches};
        const double wait = ranks - 1, work = batches;
        EXPECT_NEAR(bubble(Schedule::fill_drain, one), wait / (work + wait), 1e-12);
        EXPECT_NEAR(bubble(Schedule::one_f_one_b, one), wait / (work + wait), 1e-12);
        EXPECT_NEAR(bubble(Schedule::interleaved, several), wait / (chunks * work + wait), 1e-12);
        EXPECT_NEAR(bubble(Schedule::zero_bubble, one), wait / (3 * work + wait), 1e-12);
      }
}

TEST(Schedule, ActivationsWithinTheBound) {
  for_each_pipe([](const Pipe& pipe) {
    SCOPED_TRACE(text_of(pipe));
    const int ranks = pipe.shape.ranks, batches = pipe.shape.micro_batches, chunks = pipe.shape.chunks;
    const int largest_round = batches / std::max(1, batches / ranks) + (batches % std::max(1, batches / ranks) ? 1 : 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const int behind = ranks - 1 - rank;
      const int bound = pipe.schedule == Schedule::fill_drain    ? batches
                        : pipe.schedule == Schedule::one_f_one_b ? std::min(batches, behind + 1)
                        : pipe.schedule == Schedule::zero_bubble ? std::min(batches, ranks)
                        : chunks == 1                            ? std::min(batches, behind + 1)
                                      : std::min(chunks * batches, (chunks - 1) * largest_round + 2 * behind + 1);
      ASSERT_LE(kept_activations(pipe.table[static_cast<size_t>(rank)]), bound);
      ASSERT_EQ(activation_bound(pipe.schedule, pipe.shape, rank), bound);
    }
  });
}

// As the runner does it: a send never waits, a receive takes what the other rank sends next and puts aside what it does
// not need yet.
bool runs_to_the_end(const Pipe& pipe) {
  const PipelineShape& shape = pipe.shape;
  const size_t ranks = pipe.table.size();
  struct Line {
    std::vector<Message> order, sent;
    size_t received = 0;
  };
  std::map<std::pair<int, int>, Line> lines;
  for (int from = 0; from < shape.ranks; ++from)
    for (int to = 0; to < shape.ranks; ++to) lines[{from, to}].order = messages(pipe.table, shape, from, to);
  std::vector<std::vector<Message>> aside(ranks);
  std::vector<size_t> next(ranks, 0);

  const auto take = [&](int rank, const Message& wanted, int from) {
    std::vector<Message>& here = aside[static_cast<size_t>(rank)];
    Line& line = lines[{from, rank}];
    for (;;) {
      const auto found = std::find(here.begin(), here.end(), wanted);
      if (found != here.end()) {
        here.erase(found);
        return true;
      }
      if (line.received == line.sent.size()) return false;
      EXPECT_EQ(line.sent[line.received], line.order[line.received]);
      here.push_back(line.sent[line.received++]);
    }
  };
  const auto step = [&](int rank) {
    const std::vector<Action>& actions = pipe.table[static_cast<size_t>(rank)];
    size_t& place = next[static_cast<size_t>(rank)];
    if (place == actions.size()) return false;
    const auto [kind, stage, batch] = actions[place];
    if (kind == Kind::forward && stage > 0 && !take(rank, {false, stage, batch}, shape.rank_of(stage - 1)))
      return false;
    const bool last = stage + 1 == shape.stages(), gives = kind == Kind::backward || kind == Kind::input_gradient;
    if (gives && !last && !take(rank, {true, stage, batch}, shape.rank_of(stage + 1))) return false;
    if (kind == Kind::forward && !last)
      lines[{rank, shape.rank_of(stage + 1)}].sent.push_back({false, stage + 1, batch});
    if (gives && stage > 0) lines[{rank, shape.rank_of(stage - 1)}].sent.push_back({true, stage - 1, batch});
    ++place;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < shape.ranks; ++rank)
      while (step(rank)) moved = true;
  }
  for (size_t rank = 0; rank < ranks; ++rank)
    if (next[rank] != pipe.table[rank].size() || !aside[rank].empty()) return false;
  return true;
}

TEST(Schedule, MessagesComeInAnOrderThatBothSidesKnow) {
  for_each_pipe([](const Pipe& pipe) { ASSERT_TRUE(runs_to_the_end(pipe)) << text_of(pipe); });
}

TEST(Schedule, OneForwardOneBackwardOfAShortPipeline) {
  const ScheduleTable table = schedule_table(Schedule::one_f_one_b, {.ranks = 2, .chunks = 1, .micro_batches = 3});
  const std::vector<Action> first{{Kind::forward, 0, 0}, {Kind::forward, 0, 1},  {Kind::backward, 0, 0},
                                  {Kind::forward, 0, 2}, {Kind::backward, 0, 1}, {Kind::backward, 0, 2}};
  EXPECT_EQ(table[0], first);
  EXPECT_EQ(table[1][1], (Action{Kind::backward, 1, 0}));
  EXPECT_EQ(describe(table[1][1]), "backward of micro-batch 0");
}

}  // namespace
}  // namespace trireme::parallel
