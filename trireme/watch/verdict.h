// Why a job does not go on: a pure function of what its ranks do.
//
//   const Verdict verdict = judge(snapshots, {.waited_ms = 60'000});
//   verdict.words      "rank 0 waits in all_reduce #17 float[1000] sum of group 0 since 60 s for rank 1 (stopped)"
//   verdict.proven     true: the job cannot go on by itself
//
// Words. A rank *waits* in an open call. It waits *for* the ranks of the group that have not begun the call of that
// number, and for those that have begun it and are stopped. A hang is *proven* in four cases:
//   mismatch   two ranks called different operations under the same number of a group
//   stopped    a rank that others wait for has been stopped as long as they wait
//   gone       a rank that others wait for has ended
//   deadlock   ranks wait for each other: each of them is blocked on its main thread in a call that needs another one.
//              With calls beside the main thread, as in a backward of DataParallel, it is named, and not proven.
// Everything else may be slow only: a rank that computes, loads data, evaluates or saves while the others wait. A job
// in which a debugger holds a rank is never proven to hang. A stopped rank does not wait: in a job that was paused no
// rank does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/watch/snapshot.h"

namespace trireme::watch {

struct Verdict {
  enum class Kind {
    none,      // no rank waits long enough
    mismatch,  // the proven ones, see above
    stopped,
    gone,
    deadlock,
    busy,    // a rank that others wait for does something else
    inside,  // all ranks of the group are in the call
    still,   // no rank waits, and none moves: stillness.h
  };
  Kind kind = Kind::none;
  bool proven = false;
  std::optional<int> culprit = {};        // the rank to look at first
  std::vector<int> waiting = {};          // the ranks that wait because of it
  int64_t waited_ms = 0;                  // the longest of these waits
  std::string words = {};                 // one line
  std::string fault = {};                 // what the culprit does: "is stopped while rank 0 waits for it in …"
  std::vector<std::string> details = {};  // what each rank does, a line each
  std::string advice = {};                // the next step
};

struct JudgeOptions {
  int64_t waited_ms = 60'000;  // shorter waits do not count, nor do shorter stops prove anything
};

/// `ranks` may lack some of the job's: nothing is known about these, and nothing is proven by them.
Verdict judge(const std::vector<RankSnapshot>& ranks, const JudgeOptions& options);

/// "mismatch", "stopped" …
const char* to_string(Verdict::Kind kind);

}  // namespace trireme::watch
