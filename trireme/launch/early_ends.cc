#include "trireme/launch/early_ends.h"

#include <signal.h>

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::launch {
namespace {

void keep_last(std::vector<std::string>& lines, size_t count) {
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
}

// A PeerError ends a program by an exit code, or by abort() where nothing catches it. Another signal has another cause.
bool may_be_a_peer_error(const Ending& ending) {
  return ending.exited ? ending.code != 0 && ending.exec_errno == 0 : ending.signal == SIGABRT;
}

bool waited_for(const store::EndedRanks::Wait& wait, int rank) {
  return std::find(wait.ranks.begin(), wait.ranks.end(), rank) != wait.ranks.end();
}

}  // namespace

void EarlyEnds::note(WorkerEnding worker) {
  keep_last(worker.last_lines, kShownLines);
  try {
    ended_.note_end(worker.rank, to_json(worker));
  } catch (const Error&) {
  }
}

bool EarlyEnds::gave_up(int rank, const Ending& ending) try {
  return may_be_a_peer_error(ending) && ended_.wait_of(rank).has_value();
} catch (const Error&) {
  return false;
}

std::optional<WorkerEnding> EarlyEnds::culprit_of(int rank) try {
  const auto wait = ended_.wait_of(rank);
  if (!wait) return std::nullopt;
  for (const auto& [ended, how] : ended_.list()) {
    if (!waited_for(*wait, ended) || ended_.wait_of(ended)) continue;
    WorkerEnding culprit = worker_ending_from_json(how);
    add_waits(*wait, culprit);
    return culprit;
  }
  return std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

void EarlyEnds::add_waits(int victim, WorkerEnding& culprit) try {
  if (const auto wait = ended_.wait_of(victim)) add_waits(*wait, culprit);
} catch (const Error&) {
}

void EarlyEnds::add_waits(const store::EndedRanks::Wait& wait, WorkerEnding& culprit) {
  culprit.awaited_in = wait.operation;
  for (const store::EndedRanks::Wait& other : ended_.waits())
    if (other.rank != culprit.rank && waited_for(other, culprit.rank)) culprit.awaited_by.push_back(other.rank);
}

}  // namespace trireme::launch
