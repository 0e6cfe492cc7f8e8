// How a job ended: one screen for people, result.json for machines. Pure.
//
//   JobResult result{.outcome = Outcome::failure, .exit_code = 7, .culprit = 1, .workers = endings, …};
//   print(failure_screen(result, terminal));
//   write_file_atomically(log_dir / "result.json", result_json(result));
//
// The *culprit* is the worker that failed first. The others were *stopped* because of it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/report/diagnosis.h"

namespace trireme::launch {

/// So many of a worker's last lines are shown.
inline constexpr size_t kShownLines = 30;

struct WorkerEnding {
  int rank = 0;
  int local_rank = 0;
  std::string host = {};
  int pid = 0;
  Ending ending = {};
  std::string log = {};                      // path of its log file
  std::vector<std::string> last_lines = {};  // the last kShownLines are shown
  bool stopped = false;                      // the launcher ended it because of the culprit, or of an interruption
  bool unkillable = false;                   // it survived SIGKILL and was left behind; `ending` means nothing then
  double seconds = 0;                        // how long it ran
  // It ended with exit code 0 although other ranks needed it: which ones waited for it, and in which operation.
  std::vector<int> awaited_by{};
  std::string awaited_in{};
  // The job was ended because it hung, and this rank is the cause: in words, with advice; what every rank did; and the
  // stack of this one. With `awaited_by`: because those ranks gave up waiting for it.
  std::string hang{};
  std::string hang_advice{};
  std::vector<std::string> hang_details{};
  bool operator==(const WorkerEnding&) const = default;
};

/// The same, of a rank that the launcher ended because of this.
void blame(WorkerEnding& worker, const std::string& hang, const std::string& advice,
           const std::vector<std::string>& details);

/// Why it ended: diagnose() of its exit status and its lines, and whether others waited for it.
Diagnosis diagnose(const WorkerEnding& worker);

enum class Outcome { success, failure, interrupted };
/// "success", "failure" or "interrupted".
const char* word_of(Outcome outcome);

/// The nodes of one attempt at a job whose nodes may change.
struct Membership {
  int attempt = 0;
  std::vector<std::string> hosts;  // in node order
  int ranks = 0;
  std::string why;  // what ended the attempt before it; empty for the first
  std::chrono::system_clock::time_point since;
};

struct JobResult {
  using Time = std::chrono::system_clock::time_point;
  std::string job_id;
  Outcome outcome = Outcome::success;
  int exit_code = 0;
  std::optional<int> culprit;  // its rank
  int stop_signal = 15;        // what the others were stopped with: SIGTERM, or the signal that interrupted the job
  std::string reason;          // what ended the job when no worker did: "node 1 (hostb) does not answer"
  std::vector<WorkerEnding> workers;
  Time started;
  Time ended;
  int restarts = 0;
  std::vector<Membership> memberships = {};  // by attempt; of a job that is not elastic, the first alone
};

/// Which rank failed first, where, how in words, its last lines, its log, what to do next; then the others in few
/// lines, and the exit code. `colour` only for a terminal. Ends with a newline.
std::string failure_screen(const JobResult& result, bool colour);

/// The same for machines. Always valid JSON in UTF-8, whatever bytes the workers wrote.
std::string result_json(const JobResult& result);

/// For the way between nodes.
std::string to_json(const WorkerEnding& worker);
/// Throws PeerError when the text is not an ending.
WorkerEnding worker_ending_from_json(const std::string& text);

}  // namespace trireme::launch
