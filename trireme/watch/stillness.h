// A job in which no rank moves and none waits for another: all of them stall in their Loaders because the storage is
// gone, the only rank of a job is stuck, or a rank was stopped after the others had ended. A pure function of what the
// ranks do; judge() (verdict.h) comes first and knows more.
//
//   const Verdict verdict = judge_stillness(snapshots, {.still_ms = 60'000, .world_size = 4});
//   verdict.words      "nothing has moved since 61 s: ranks 0, 1 (loading data for 61 s of step 16, sleeping)"
//
// Words. A rank *moves* when a step, a phase or an operation of a group begins or ends, or it reports a number. A rank
// is *still* when it has not moved for so long; in an evaluation or a save, which may be long, ten times as long. It is
// still, too, when it has been stopped for so long. Nothing here is ever proven: a program may compute for minutes
// without recording anything, and a stopped rank may be continued.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/watch/verdict.h"

namespace trireme::watch {

struct StillnessOptions {
  int64_t still_ms = 60'000;
  int world_size = 0;  ///< there is no verdict while nothing is known about one of so many ranks
};

/// Kind::none or Kind::still, with a culprit: the rank to look at first.
Verdict judge_stillness(const std::vector<RankSnapshot>& ranks, const StillnessOptions& options);

}  // namespace trireme::watch
