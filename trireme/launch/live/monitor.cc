#include "trireme/launch/live/monitor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/text.h"
#include "trireme/launch/live/log_tail.h"
#include "trireme/launch/live/metrics.h"
#include "trireme/launch/live/trace.h"

namespace trireme::launch {
namespace {

constexpr Millis kLookEvery{1'000};
constexpr Millis kHistoryEvery{10'000};
constexpr Millis kShortest{20}, kLongest{500};  // between two readings of the rings
constexpr Millis kWhileTracing{50};             // likewise: the ring of a fast loop is full after a quarter of a second
constexpr Millis kTraceWait{10'000};
constexpr Millis kOpenPage{5'000};     // after its last request a page counts as open; it sends one every second
constexpr Millis kFarewell{5'000};     // at most, for an open page to take the final state
constexpr size_t kPageSpans = 400;     // of a rank's time line
constexpr size_t kHistoryRanks = 64;   // with time lines in history.json
constexpr size_t kNodeSpans = 2'000;   // of all ranks of a node, to node 0
constexpr size_t kTraceSpans = 8'000;  // of a node, to node 0: about 1 MB, which etcd takes

int64_t wall_ms() {
  return std::chrono::duration_cast<Millis>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string words_of_failure(const Error& error) {
  return printable(error.what());
}

}  // namespace

Monitor::Monitor(Options options)
    : options_(std::move(options)),
      started_ms_(wall_ms()),
      collector_({.node = options_.node, .epoch = watch::now_ns(), .traced = options_.trace}) {
  job_ = {.job_id = options_.job_id,
          .program = options_.program,
          .host = options_.host,
          .started_ms = started_ms_,
          .now_ms = started_ms_};
  if (options_.trace) job_.trace = fmt::format("waiting for step {}", options_.trace->first);
  if (options_.dashboard) {
    dashboard_ = std::make_unique<Dashboard>(*options_.dashboard, *this);
    write_url();
  }
  thread_ = start_quiet_thread("the look at the ranks", [this] { run(); });
}

Monitor::~Monitor() {
  dashboard_.reset();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::error_code ignored;
  if (options_.dashboard) std::filesystem::remove(std::filesystem::path(options_.log_dir) / "dashboard.url", ignored);
}

std::string Monitor::url() const {
  return dashboard_ ? dashboard_->url(false) : "";
}

// Readable by the owner alone: it may hold the page's token.
void Monitor::write_url() const {
  const std::filesystem::path path = std::filesystem::path(options_.log_dir) / "dashboard.url";
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::filesystem::remove(path, ignored);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string text = dashboard_->url(true) + "\n";
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw SystemError(errno, "cannot write {}, which tells the dashboard's address", path.string());
}

// --- the supervisor's side

void Monitor::begin(Attempt attempt) {
  const std::lock_guard lock(mutex_);
  std::vector<RankFacts> local;
  job_.ranks.clear();
  job_.nodes = 1;
  for (const RankFacts& facts : attempt.world) {
    if (facts.node == options_.node) local.push_back(facts);
    job_.ranks.push_back({.rank = facts.rank, .node = facts.node, .host = facts.host, .device = facts.device});
    job_.nodes = std::max(job_.nodes, facts.node + 1);
  }
  collector_.begin(local, attempt.rings);
  world_ = std::move(attempt.world);
  workers_.assign(local.size(), {});
  job_.world_size = static_cast<int>(world_.size());
  job_.restarts = attempt.number;
  job_.verdict = {};
  remote_timelines_.clear();
  remote_log_ = {};
  if (attempt.store)
    exchange_ = std::make_shared<LiveExchange>(LiveExchange::Options{.store = attempt.store,
                                                                     .attempt = attempt.number,
                                                                     .node = options_.node,
                                                                     .nodes = job_.nodes,
                                                                     .epoch_ms = started_ms_});
  if (options_.node == 0)
    other_traces_.clear();
  else
    traced_ = false;  // so its part is sent again
}

void Monitor::update(std::vector<WorkerState> workers, const watch::Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  workers_ = std::move(workers);
  job_.verdict = verdict;
}

void Monitor::end_attempt(Millis to_hear) {
  std::shared_ptr<LiveExchange> exchange;
  {
    const std::lock_guard lock(mutex_);
    collector_.read_events();
    look(watch::now_ns());
    publish(watch::now_ns(), node_spans());
    publish_trace();
    collector_.end();
    exchange = exchange_;
    if (options_.node != 0) exchange_.reset();  // else the thread's next look replaces what was published last
  }
  if (!exchange) return;
  exchange->finish(Deadline::in(to_hear));
  const std::lock_guard lock(mutex_);
  take_other_nodes();
  exchange_.reset();
  for (RankView& rank : job_.ranks)
    if (options_.node == 0 && rank.node != 0 && !rank.ended) rank.state = "not known: its launcher has not reported";
}

void Monitor::show_failure(const std::string& screen) {
  const std::lock_guard lock(mutex_);
  job_.failure = screen;
}

void Monitor::finish(const std::string& outcome, int exit_code, const std::string& failure) {
  std::optional<std::string> trace;
  std::string history;
  JobView job;
  {
    const std::lock_guard lock(mutex_);
    job_.state = outcome;
    job_.exit_code = exit_code;
    job_.now_ms = wall_ms();
    if (!failure.empty()) job_.failure = failure;
    if (outcome == "success") job_.verdict = {};
    finished_ = true;
    trace = finished_trace();
    history = history_text();
    job = job_;
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();  // else it might write an older state after the last one
  if (trace) write("trace.json", *trace);
  if (options_.node == 0) {
    write("history.json", history);
    write_state(job);
  }
  linger();
}

void Monitor::linger() {
  if (!dashboard_) return;
  std::unique_lock lock(mutex_);
  if (Clock::now() - asked_ > kOpenPage) return;
  changed_.wait_for(lock, kFarewell, [this]() TRIREME_REQUIRES(mutex_) { return final_state_taken_; });
}

// --- the thread

void Monitor::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    turn();
    lock.lock();
    const Millis longest = options_.trace && !traced_ ? kWhileTracing : kLongest;
    changed_.wait_for(lock, std::min(period_, longest), [this]() TRIREME_REQUIRES(mutex_) { return stop_; });
  }
}

void Monitor::turn() {
  std::optional<std::string> trace, history;
  std::optional<JobView> job;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    const size_t found = collector_.read_events();
    if (found > watch::Ring::kEvents / 4) period_ = std::max(kShortest, period_ / 2);
    if (found < watch::Ring::kEvents / 16) period_ = std::min(kLongest, period_ * 2);
    if (!next_look_.passed()) return;
    next_look_ = Deadline::in(kLookEvery);
    look(watch::now_ns());
    trace = finished_trace();
    if (options_.node == 0) job = job_;
    if (options_.node == 0 && next_history_.passed()) {
      next_history_ = Deadline::in(kHistoryEvery);
      history = history_text();
    }
  }
  if (trace) write("trace.json", *trace);
  if (job) write_state(*job);
  if (job && options_.on_look) options_.on_look(*job);
  if (history) write("history.json", *history);
}

void Monitor::look(int64_t now) {
  job_.now_ms = wall_ms();
  if (exchange_ && options_.node != 0)
    if (const auto epoch = exchange_->epoch_ms()) collector_.move_epoch(now - (job_.now_ms - *epoch) * 1'000'000);
  collector_.look(workers_, now);
  for (const RankView& rank : collector_.ranks())
    if (const auto place = static_cast<size_t>(rank.rank); place < job_.ranks.size()) job_.ranks[place] = rank;
  publish(now, options_.timelines ? node_spans() : 0);
  if (collector_.trace_complete()) publish_trace();
  take_other_nodes();
  note_job_curves(now);
  const auto slower = options_.node == 0 ? stragglers_.note(job_.ranks, Clock::now()) : std::nullopt;
  if (slower) log_warning("{}; each step waits for it", *slower);
}

size_t Monitor::node_spans() const {
  return std::max<size_t>(8, kNodeSpans / std::max<size_t>(1, collector_.ranks().size()));
}

void Monitor::publish(int64_t now, size_t most_spans) {
  if (exchange_ && options_.node != 0) exchange_->publish(own_view(now, most_spans));
}

NodeView Monitor::own_view(int64_t now, size_t most_spans) const {
  NodeView view{.node = options_.node, .ranks = collector_.ranks()};
  if (most_spans > 0) view.timelines = collector_.timelines(now, most_spans);
  const auto wanted = exchange_ ? exchange_->wanted_log() : std::nullopt;
  for (const RankView& rank : view.ranks)
    if (wanted == rank.rank) view.log = tail_of(rank.rank);
  return view;
}

void Monitor::take_other_nodes() {
  if (!exchange_ || options_.node != 0) return;
  remote_timelines_.clear();
  for (auto& [node, trace] : exchange_->take_traces()) other_traces_[node] = std::move(trace);
  for (NodeView& view : exchange_->received()) {
    for (RankView& rank : view.ranks) {
      const auto place = static_cast<size_t>(std::max(0, rank.rank));
      if (place >= world_.size() || world_[place].node != view.node) continue;
      note_remote_curves(rank);
      job_.ranks[place] = std::move(rank);
    }
    for (RankTimeline& timeline : view.timelines) remote_timelines_.push_back(std::move(timeline));
    if (view.log.rank >= 0) remote_log_ = std::move(view.log);
  }
}

void Monitor::note_remote_curves(const RankView& rank) {
  auto& curves = remote_curves_[rank.rank];
  const double seconds = static_cast<double>(job_.now_ms - started_ms_) / 1000;
  for (const auto& [name, value] : rank.values) {
    Curve& curve = curves[name];
    const auto& newest = curve.newest();
    if (!newest || newest->step != rank.step || newest->value != value) curve.add({rank.step, seconds, value});
  }
}

void Monitor::note_job_curves(int64_t now) {
  const JobTotals totals = totals_of(job_.ranks);
  const double seconds = static_cast<double>(now - collector_.epoch()) / 1e9;
  const bool counts = totals.samples_per_second >= 0;
  if (counts) job_curves_.erase("steps/s");  // which says the same
  if (counts)
    job_curves_["samples/s"].add({totals.step, seconds, totals.samples_per_second});
  else if (totals.steps_per_second >= 0 && !job_curves_.contains("samples/s"))
    job_curves_["steps/s"].add({totals.step, seconds, totals.steps_per_second});
}

// --- the trace

NodeView Monitor::own_trace() const {
  NodeView mine{.node = options_.node, .ranks = collector_.ranks()};
  const size_t ranks = std::max<size_t>(1, mine.ranks.size());
  mine.timelines = collector_.trace(options_.node == 0 ? RankHistory::kMaxTraced : kTraceSpans / ranks);
  return mine;
}

// Sends the whole trace, or, at the end of an attempt, the steps that are done.
void Monitor::publish_trace() {
  if (options_.node == 0 || !options_.trace || traced_ || !exchange_) return;
  traced_ = collector_.trace_complete();
  exchange_->publish_trace(own_trace());
}

std::optional<std::string> Monitor::finished_trace() {
  if (options_.node != 0 || !options_.trace || traced_) return std::nullopt;
  if (!finished_ && !collector_.trace_complete()) return std::nullopt;
  if (trace_wait_.is_never()) trace_wait_ = Deadline::in(kTraceWait);
  const bool all = static_cast<int>(other_traces_.size()) + 1 >= job_.nodes;
  if (!all && !finished_ && !trace_wait_.passed()) return std::nullopt;
  std::vector<NodeTrace> nodes{trace_of(own_trace())};
  for (const auto& [node, view] : other_traces_) nodes.push_back(trace_of(view));
  traced_ = true;
  if (std::all_of(nodes.begin(), nodes.end(), [](const NodeTrace& node) { return node.empty(); })) {
    job_.trace = fmt::format("not written: no rank reached step {}", options_.trace->first);
    return std::nullopt;
  }
  job_.trace = (std::filesystem::path(options_.log_dir) / "trace.json").string();
  if (const uint64_t left_out = left_out_of(nodes); left_out > 0)
    log_warning(
        "{} lacks the last {} spans: up to {} of a rank are kept, and of a machine other than node 0 up to {}; "
        "trace fewer steps with --trace steps=FIRST:LAST",
        job_.trace, left_out, RankHistory::kMaxTraced, kTraceSpans);
  align_clocks(nodes);
  return chrome_trace(options_.job_id, nodes);
}

// --- the page's requests

std::string Monitor::state() {
  std::unique_lock lock(mutex_);
  asked_ = Clock::now();
  final_state_taken_ = finished_;
  const JobView job = job_;
  lock.unlock();
  changed_.notify_all();
  return state_json(job);
}

const std::map<std::string, Curve>* Monitor::values_of(int rank) const {
  if (const RankHistory* const history = collector_.history(rank)) return &history->curves();
  const auto remote = remote_curves_.find(rank);
  return remote == remote_curves_.end() ? nullptr : &remote->second;
}

Monitor::Curves Monitor::curves_of(std::optional<int> rank) {
  constexpr int kJob = -1;
  Curves curves;
  for (const auto& [name, curve] : job_curves_) curves[name] = {kJob, curve.points()};
  for (const RankFacts& facts : world_) {
    if (rank && facts.rank != *rank) continue;
    const auto* const values = values_of(facts.rank);
    for (auto value = values ? values->begin() : decltype(values->begin()){}; values && value != values->end(); ++value)
      if (!curves.contains(value->first)) curves[value->first] = {facts.rank, value->second.points()};
  }
  return curves;
}

std::string Monitor::curves(std::optional<int> rank) {
  std::unique_lock lock(mutex_);
  const Curves curves = curves_of(rank);
  lock.unlock();
  return curves_json(curves);
}

std::vector<RankTimeline> Monitor::timelines_of(const std::vector<int>& ranks, size_t most) {
  std::vector<RankTimeline> found;
  collector_.read_events();
  const int64_t now = watch::now_ns();
  for (const int rank : ranks) {
    if (auto local = collector_.timeline(rank, now, most)) found.push_back(std::move(*local));
    for (const RankTimeline& remote : remote_timelines_)
      if (remote.rank == rank) found.push_back(remote);
  }
  return found;
}

std::string Monitor::timelines(const std::vector<int>& ranks) {
  std::unique_lock lock(mutex_);
  const auto found = timelines_of(ranks, kPageSpans);
  lock.unlock();
  return timelines_json(found);
}

LogTail Monitor::tail_of(int rank) const {
  for (const RankFacts& facts : world_)
    if (facts.rank == rank) return {.rank = rank, .path = facts.log, .text = log_tail(facts.log)};
  return {};
}

std::optional<std::string> Monitor::log(int rank) {
  const std::lock_guard lock(mutex_);
  for (const RankFacts& facts : world_) {
    if (facts.rank != rank) continue;
    if (facts.node == options_.node) return log_json(tail_of(rank));
    if (exchange_) exchange_->want_log(rank);
    if (remote_log_.rank == rank) return log_json(remote_log_);
    return log_json({.rank = rank, .path = facts.log, .text = ""});
  }
  return std::nullopt;
}

std::string Monitor::metrics() {
  std::unique_lock lock(mutex_);
  const JobView job = job_;
  lock.unlock();
  return metrics_text(job);
}

std::string Monitor::progress() {
  const std::lock_guard lock(mutex_);
  return progress_json(job_);
}

// --- files

std::string Monitor::history_text() {
  std::vector<int> ranks;
  for (const RankFacts& facts : world_)
    if (ranks.size() < kHistoryRanks) ranks.push_back(facts.rank);
  const std::string curves = curves_json(curves_of(std::nullopt));
  const std::string timelines = timelines_json(timelines_of(ranks, kPageSpans));
  nlohmann::json logs = nlohmann::json::object();
  for (const RankFacts& facts : world_)
    if (facts.node == options_.node)
      logs[std::to_string(facts.rank)] = std::filesystem::path(facts.log).filename().string();
  return fmt::format("{{\"state\":{},\"curves\":{},\"timelines\":{},\"logs\":{}}}\n", state_json(job_), curves,
                     timelines, logs.dump());
}

// live.json is for `trireme top` of the same version, progress.json for other programs.
void Monitor::write_state(const JobView& job) {
  write("live.json", state_json(job));
  write("progress.json", progress_json(job));
}

void Monitor::write(const char* name, const std::string& text) try {
  const std::filesystem::path folder = options_.log_dir;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  write_file_atomically(folder / name, text, {.durable = false});
  if (unwritten_ == name) unwritten_.clear();
} catch (const SystemError& error) {
  if (!unwritten_.empty()) return;
  log_warning("{}; the job goes on", words_of_failure(error));
  unwritten_ = name;
}

}  // namespace trireme::launch
