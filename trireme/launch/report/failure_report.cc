#include "trireme/launch/report/failure_report.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

constexpr size_t kMaxLine = 400;

class Painter {
 public:
  explicit Painter(bool on) : on_(on) {}
  std::string bad(const std::string& text) const { return paint("1;31", text); }
  std::string strong(const std::string& text) const { return paint("1", text); }

 private:
  std::string paint(const char* code, const std::string& text) const {
    return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }
  bool on_;
};

const WorkerEnding* find_culprit(const JobResult& result) {
  if (!result.culprit) return nullptr;
  const auto is_it = [&](const WorkerEnding& worker) { return worker.rank == *result.culprit; };
  const auto found = std::find_if(result.workers.begin(), result.workers.end(), is_it);
  return found == result.workers.end() ? nullptr : &*found;
}

std::string cut(const std::string& line) {
  if (line.size() <= kMaxLine) return printable(line);
  size_t end = kMaxLine;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return printable(line.substr(0, end)) + " …";
}

std::string last_lines_text(const WorkerEnding& worker, const Painter& paint) {
  const size_t count = std::min(worker.last_lines.size(), kShownLines);
  if (count == 0) return "  It wrote nothing.\n";
  std::string text = "  " + paint.strong(count == 1 ? "Last line:" : fmt::format("Last {} lines:", count)) + "\n";
  for (auto line = worker.last_lines.end() - static_cast<long>(count); line != worker.last_lines.end(); ++line)
    text += fmt::format("  | {}\n", cut(*line));
  return text;
}

std::string evidence_text(const Diagnosis& diagnosis) {
  std::string text;
  for (const std::string& line : diagnosis.evidence) text += fmt::format("  > {}\n", cut(line));
  return text;
}

std::string log_text(const WorkerEnding& worker, const Diagnosis& diagnosis, const Painter& paint) {
  std::string text;
  if (!worker.log.empty()) text += fmt::format("  {} {}\n", paint.strong("Log:"), printable(worker.log));
  if (!diagnosis.advice.empty()) text += fmt::format("  {} {}\n", paint.strong("Next step:"), diagnosis.advice);
  return text;
}

// A hanging one without a process id: a rank of another node, whose launcher knows its last lines.
std::string culprit_text(const WorkerEnding& worker, const Painter& paint) {
  const Diagnosis diagnosis = diagnose(worker);
  std::string text = paint.bad(fmt::format("Rank {} on {}{} {}", worker.rank, printable(worker.host),
                                           worker.awaited_by.empty() && worker.hang.empty() ? " failed first:" : "",
                                           printable(diagnosis.words)));
  if (worker.pid == 0 && !worker.hang.empty())
    return text + "\n" + evidence_text(diagnosis) + log_text(worker, diagnosis, paint);
  text += fmt::format("\n  pid {}, local rank {}, after {:.1f} s\n", worker.pid, worker.local_rank, worker.seconds);
  return text + evidence_text(diagnosis) + last_lines_text(worker, paint) + log_text(worker, diagnosis, paint);
}
std::string ending_of_job(const JobResult& result) {
  const std::string reason = result.reason.empty() ? "" : ": " + printable(result.reason);
  return (result.outcome == Outcome::interrupted ? "was interrupted" : "failed") + reason;
}

std::string head(const JobResult& result, const Painter& paint) {
  const WorkerEnding* culprit = find_culprit(result);
  if (culprit) return culprit_text(*culprit, paint);
  return paint.bad(fmt::format("Job {} {}", printable(result.job_id), ending_of_job(result))) + "\n";
}

// --- the other workers, those with the same fate in one line

using Workers = std::vector<const WorkerEnding*>;

std::vector<int> ranks_of(const Workers& workers) {
  std::vector<int> ranks;
  for (const WorkerEnding* worker : workers) ranks.push_back(worker->rank);
  return ranks;
}

std::string stopped_text(const Workers& workers, const JobResult& result) {
  if (workers.empty()) return "";
  const auto was_killed = [](const WorkerEnding* worker) { return worker->ending.signal == SIGKILL; };
  const auto killed = std::count_if(workers.begin(), workers.end(), was_killed);
  const std::string because = result.culprit ? fmt::format(" because of rank {}", *result.culprit) : "";
  const std::string first = signal_name(result.stop_signal);
  const std::string how = killed ? fmt::format("{}; {} needed SIGKILL", first, killed) : first;
  return fmt::format("  {}: stopped{} ({})\n", ranks_words(ranks_of(workers)), because, how);
}

std::string unkillable_text(const Workers& workers) {
  std::string text;
  for (const WorkerEnding* worker : workers)
    text +=
        fmt::format("  rank {}: survived SIGKILL and was left behind: pid {} on {} (state D? see `ps -o stat,wchan`)\n",
                    worker->rank, worker->pid, printable(worker->host));
  return text;
}

std::string own_endings_text(const Workers& workers) {
  std::map<std::string, Workers> by_words;
  for (const WorkerEnding* worker : workers)
    by_words[worker->ending.success() ? "finished" : diagnose(*worker).words].push_back(worker);
  std::string text;
  for (const auto& [words, group] : by_words)
    text += fmt::format("  {}: {}\n", ranks_words(ranks_of(group)), printable(words));
  return text;
}

std::string others_text(const JobResult& result) {
  const WorkerEnding* culprit = find_culprit(result);
  Workers stopped, unkillable, own;
  for (const WorkerEnding& worker : result.workers) {
    if (&worker == culprit) continue;
    (worker.unkillable ? unkillable : worker.stopped ? stopped : own).push_back(&worker);
  }
  const std::string text = stopped_text(stopped, result) + own_endings_text(own) + unkillable_text(unkillable);
  return text.empty() ? "" : (culprit ? "The others:\n" : "The workers:\n") + text;
}

}  // namespace

std::string failure_screen(const JobResult& result, bool colour) {
  const Painter paint(colour);
  const std::string rule = std::string(80, '-') + "\n";
  return rule + head(result, paint) + others_text(result) + fmt::format("Exit code {}\n", result.exit_code) + rule;
}

void blame(WorkerEnding& worker, const std::string& hang, const std::string& advice,
           const std::vector<std::string>& details) {
  worker.unkillable = false;
  worker.stopped = true;
  worker.hang = hang;
  worker.hang_advice = advice;
  worker.hang_details = details;
}

Diagnosis diagnose(const WorkerEnding& worker) {
  if (!worker.hang.empty()) {
    Diagnosis hang{
        .cause = "hang", .words = worker.hang, .advice = worker.hang_advice, .evidence = worker.hang_details};
    if (!worker.awaited_by.empty()) hang.cause = "late";
    return hang;
  }
  if (worker.awaited_by.empty()) return diagnose(worker.ending, worker.last_lines);
  return {.cause = "ended_early",
          .words = fmt::format("ended with exit code 0 while {} waited for it in {}", ranks_words(worker.awaited_by),
                               worker.awaited_in),
          .advice =
              "All ranks must make the same calls: look for a return, an exit or a shorter loop that only this "
              "rank takes."};
}

}  // namespace trireme::launch
