// Ranks that ended with exit code 0 although other ranks needed them. The launchers note every rank that ends well; a
// rank that gives up waiting notes which ranks it waited for (store/ended_ranks.h). Where both notes name one rank,
// that rank is the culprit, and the ranks that waited are its victims. A rank that lives and was late is known to the
// watch for hangs (hang_watch.h).
//
//   EarlyEnds ends(store, attempt);
//   ends.note(ending);                                      // of a worker that ended with exit code 0
//   if (ends.gave_up(0, how_it_ended)) ends.culprit_of(0);     // rank 1, and the ranks that waited for it
#pragma once

#include <memory>
#include <optional>

#include "trireme/launch/report/failure_report.h"
#include "trireme/store/ended_ranks.h"

namespace trireme::launch {

/// A store that is lost or full is not an error here: the job goes on, and the launchers notice a loss elsewhere.
class EarlyEnds {
 public:
  EarlyEnds(std::shared_ptr<Store> store, int attempt) : ended_(std::move(store), attempt) {}

  void note(WorkerEnding worker);
  /// Whether a rank that failed in this way had given up waiting for others.
  bool gave_up(int rank, const Ending& ending);
  /// The rank that it waited for and that has ended (not one that gave up waiting itself and then ended in order), with
  /// `awaited_by` and `awaited_in`; nothing while none is known to have ended.
  std::optional<WorkerEnding> culprit_of(int rank);
  /// Of a rank that lives and was late for one that gave up: `awaited_by` and `awaited_in`.
  void add_waits(int victim, WorkerEnding& culprit);

 private:
  void add_waits(const store::EndedRanks::Wait& wait, WorkerEnding& culprit);

  store::EndedRanks ended_;
};

}  // namespace trireme::launch
