#include "trireme/launch/live_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/launch/live/straggler.h"
#include "trireme/launch/stack_dump.h"
#include "trireme/launch/top.h"
#include "trireme/watch/stillness.h"
#include "trireme/watch/verdict.h"

namespace trireme::launch {
namespace {

constexpr int64_t kWait = 2'000;    // milliseconds
constexpr int64_t kStill = 10'000;  // milliseconds
constexpr Millis kDebuggerTime{20'000};
constexpr const char* kLock = ".launch.lock";
constexpr const char* kState = "live.json";

struct Owner {
  int pid = 0;
  std::string host = {};
};

std::optional<Owner> find_owner(const std::filesystem::path& folder) {
  const std::string owner = read_file(folder / kLock).value_or("");  // see OwnerLock
  const size_t space = owner.find(' ');
  const auto pid = parse_int(owner.substr(0, space), 1, std::numeric_limits<int>::max());
  if (!pid || space == std::string::npos) return std::nullopt;
  return Owner{.pid = static_cast<int>(*pid), .host = owner.substr(space + 1)};
}

Owner owner_of(const std::filesystem::path& folder) {
  if (auto owner = find_owner(folder)) return *std::move(owner);
  throw UsageError(
      "{}: not the log folder of a job; give the --log_dir of a running one, its id, or its launcher's pid",
      folder.string());
}

int launcher_in(const std::filesystem::path& folder) {
  const Owner owner = owner_of(folder);
  if (owner.host != host_name())
    throw UsageError("{}: the job runs on {}, and this is {}; ask there", folder.string(), printable(owner.host),
                     host_name());
  return owner.pid;
}

// Of a folder of /proc, which the process may leave at any time; empty when it cannot be read.
std::vector<std::filesystem::path> entries_of(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    paths.push_back(entry->path());
  return paths;
}

struct OpenFile {
  std::filesystem::path entry;  // of /proc/PID/fd
  std::filesystem::path target;
};

std::vector<OpenFile> open_files(int pid) {
  std::vector<OpenFile> files;
  for (const auto& entry : entries_of(fmt::format("/proc/{}/fd", pid))) {
    std::error_code unreadable;
    files.push_back({entry, std::filesystem::read_symlink(entry, unreadable)});
  }
  return files;
}

// A launcher keeps the lock in its log folder open. Nothing: the process is not a launcher, has ended, or belongs to
// another user.
std::optional<std::filesystem::path> folder_of(int launcher) {
  for (const OpenFile& file : open_files(launcher))
    if (file.target.filename() == kLock) return file.target.parent_path();
  return std::nullopt;
}

std::optional<int> pid_of(const std::string& text) {
  const auto pid = parse_int(text, 1, std::numeric_limits<int>::max());
  return pid ? std::optional(static_cast<int>(*pid)) : std::nullopt;
}

// The log folders of the launchers of this machine, and of node 0 of jobs whose folders it sees, by job id.
std::set<std::filesystem::path> folders_of_job(const std::string& id) {
  std::set<std::filesystem::path> folders;
  for (const auto& process : entries_of("/proc")) {
    const auto pid = pid_of(process.filename().string());
    const auto folder = pid ? folder_of(*pid) : std::nullopt;
    const auto state = folder ? read_file(*folder / kState) : std::nullopt;
    const auto view = state ? job_view_from_json(*state) : std::nullopt;
    if (view && view->job_id == id) folders.insert(*folder);
  }
  return folders;
}

std::optional<std::filesystem::path> folder_of_job(const std::string& id) {
  const auto folders = folders_of_job(id);
  if (folders.empty()) return std::nullopt;
  if (folders.size() == 1) return *folders.begin();
  std::vector<std::string> names;
  for (const auto& folder : folders) names.push_back(folder.string());
  throw UsageError("{} jobs with the id {} run here: name one by its log folder: {}", names.size(), printable(id),
                   join_some(names, 8));
}

// Whether no process of this machine has the lock; false where that cannot be told.
bool is_free(const std::filesystem::path& lock) {
  const UniqueFd file(::open(lock.c_str(), O_RDONLY | O_CLOEXEC));
  return file && ::flock(file.get(), LOCK_SH | LOCK_NB) == 0;
}

// The lock tells, not the pid alone: a zombie has it no more, and another process may have got the number.
bool was_killed(const std::filesystem::path& folder) {
  const auto owner = find_owner(folder);
  if (!owner || owner->host != host_name()) return false;
  return (::kill(owner->pid, 0) != 0 && errno == ESRCH) || is_free(folder / kLock);
}

JobView read_state(const std::filesystem::path& folder) {
  const auto text = read_file(folder / kState);
  if (!text) {
    owner_of(folder);
    throw UsageError(
        "{}: no {} there: the job has just begun, or this is the log folder of another node than 0; try again in a "
        "moment, or give the log folder of node 0",
        folder.string(), kState);
  }
  if (auto view = job_view_from_json(*text)) return *std::move(view);
  throw UsageError("{}: cannot be read; was it written by a launcher of another version than {}?",
                   (folder / kState).string(), kVersion);
}

// The launcher keeps the files of its ranks open.
std::vector<LiveRank> ranks_of(int launcher) {
  std::vector<LiveRank> ranks;
  for (const auto& [entry, target] : open_files(launcher)) {
    if (!target.string().starts_with(fmt::format("/memfd:{}", watch::kRingFile))) continue;
    const UniqueFd file(::open(entry.c_str(), O_RDONLY | O_CLOEXEC));
    const auto ring = file ? watch::Ring::map(file.get(), watch::Access::read) : nullptr;
    if (!ring) continue;
    LiveRank rank{watch::take_snapshot(*ring, watch::now_ns(), std::numeric_limits<int64_t>::max()), ring->owner()};
    if (rank.pid != 0) rank.seen.state = watch::read_process_state(rank.pid);
    if (rank.seen.state == watch::ProcessState::stopped) rank.seen.stopped_ms = kWait;
    ranks.push_back(std::move(rank));
  }
  std::sort(ranks.begin(), ranks.end(), [](const LiveRank& a, const LiveRank& b) { return a.seen.rank < b.seen.rank; });
  return ranks;
}

std::vector<LiveRank> live_ranks(const std::filesystem::path& folder) {
  const int launcher = launcher_in(folder);
  std::vector<LiveRank> ranks = ranks_of(launcher);
  if (ranks.empty())
    throw UsageError(
        "process {} is not a launcher whose ranks can be watched: it has ended, belongs to another user, or was "
        "started with --hang_timeout 0",
        launcher);
  return ranks;
}

// What can be told by the ranks of this machine alone.
watch::Verdict judge_here(const std::vector<LiveRank>& ranks, int world_size) {
  std::vector<watch::RankSnapshot> seen;
  for (const LiveRank& rank : ranks) seen.push_back(rank.seen);
  watch::Verdict waits = watch::judge(seen, {.waited_ms = kWait});
  if (waits.kind != watch::Verdict::Kind::none) return waits;
  return watch::judge_stillness(seen, {.still_ms = kStill, .world_size = world_size});
}

std::string verdict_text(const watch::Verdict& verdict) {
  std::string text = verdict.words + "\n";
  for (const std::string& line : verdict.details) text += fmt::format("  {}\n", line);
  return text + verdict.advice + "\n";
}

// Of node 0's launcher, which alone knows the ranks of all nodes. Nothing: this is another node, or the job begins.
std::optional<JobView> view_in(const std::filesystem::path& folder) try {
  return live_job_view(folder);
} catch (const UsageError&) {
  return std::nullopt;
}

// The verdict follows it.
std::string ranks_table(JobView view) {
  view.verdict = {};
  std::string text;
  for (const std::string& line : top_lines(view, {}, view.now_ms)) text += line + "\n";
  const auto straggler = find_straggler(view.ranks);
  return text + (straggler ? "\n" + describe(*straggler) + "\n" : "");
}

}  // namespace

std::filesystem::path live_job_folder(const std::string& job) {
  if (std::filesystem::exists(std::filesystem::path(job) / kLock)) return job;
  const auto pid = pid_of(job);
  if (const auto folder = pid ? folder_of(*pid) : std::nullopt) return *folder;
  if (const auto folder = folder_of_job(job)) return *folder;
  if (!pid) return job;
  throw UsageError(
      "process {} is not a launcher with a log folder: it has ended, or belongs to another user; no job with this id "
      "runs here either",
      *pid);
}

JobView live_job_view(const std::filesystem::path& folder) {
  JobView view = read_state(folder);
  if (view.state != "running" || !was_killed(folder)) return view;
  view = read_state(folder);  // a launcher that has ended meanwhile has written how
  if (view.state == "running") view.state = "gone";
  return view;
}

LiveReport live_job_report(const std::string& job) {
  const std::filesystem::path folder = live_job_folder(job);
  const std::vector<LiveRank> ranks = live_ranks(folder);
  const auto view = view_in(folder);
  const bool several = view && view->nodes > 1;
  watch::Verdict verdict = judge_here(ranks, view ? view->world_size : 0);
  if (several && !view->verdict.words.empty()) verdict = view->verdict;
  LiveReport report{.text = view ? ranks_table(*view) + "\n" : ""};
  report.text += !verdict.words.empty() ? verdict_text(verdict)
                                        : fmt::format("none of the {} ranks on this machine has waited for {} s\n",
                                                      ranks.size(), kWait / 1000);
  for (const LiveRank& rank : ranks)
    if (verdict.culprit == rank.seen.rank && rank.pid != 0) report.culprit = rank;
  if (verdict.culprit && !report.culprit)
    report.text += fmt::format("Rank {} runs on another machine: ask there for its stack.\n", *verdict.culprit);
  return report;
}

std::string stack_text(const LiveRank& rank) {
  std::string text = fmt::format("stack of rank {}:\n", rank.seen.rank);
  StackDump stack(rank.pid, Deadline::in(kDebuggerTime));
  while (!stack.done()) stack.wait();
  for (const std::string& line : stack.lines()) text += fmt::format("  {}\n", printable(line));
  return text;
}

}  // namespace trireme::launch
