#include "trireme/launch/live/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "trireme/core/log.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/text.h"
#include "trireme/launch/live/log_tail.h"
#include "trireme/launch/live/metrics.h"
#include "trireme/launch/live/page_json.h"

namespace trireme::launch {
namespace {

constexpr Millis kLookPeriod{1'000};
constexpr Millis kHistoryPeriod{10'000};
constexpr Millis kMinReadPeriod{20}, kMaxReadPeriod{500};  // of the rings
constexpr Millis kTracedReadPeriod{50};                    // a fast loop fills its ring in a quarter of a second
constexpr Millis kPageOpenTime{5'000};      // a page asks every second; it counts as open this long after a request
constexpr Millis kFinalStateTime{5'000};    // for an open page to ask for the final state
constexpr Millis kLastRequestsTime{2'000};  // for a page to ask for the rest
constexpr Millis kDrainTime{1'000};         // for answers to be sent
constexpr size_t kPageSpans = 400;          // of a rank's time line, on the page and in history.json
constexpr size_t kHistoryRanks = 64;        // with time lines in history.json
constexpr size_t kNodeSpans = 2'000;        // of all ranks of a node, to node 0

int64_t wall_ms() {
  return std::chrono::duration_cast<Millis>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Monitor::Monitor(Options options)
    : options_(std::move(options)),
      started_ms_(wall_ms()),
      collector_({.node = options_.node, .epoch = watch::now_ns(), .traced = options_.trace}),
      traces_(options_.node, options_.trace),
      files_(options_.log_dir) {
  job_ = {.job_id = options_.job_id,
          .program = options_.program,
          .host = options_.host,
          .started_ms = started_ms_,
          .now_ms = started_ms_};
  if (options_.trace) job_.trace = fmt::format("waiting for step {}", options_.trace->first);
  if (options_.dashboard) {
    dashboard_ = std::make_unique<Dashboard>(*options_.dashboard, *this);
    files_.write_url(dashboard_->url(true));
  }
  thread_ = start_quiet_thread("the look at the ranks", [this] { run(); });
}

Monitor::~Monitor() {
  dashboard_.reset();
  stop();
  if (options_.dashboard) files_.remove_url();
}

void Monitor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string Monitor::url() const {
  return dashboard_ ? dashboard_->url(false) : "";
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
  job_.verdict = {};
  remote_timelines_.clear();
  remote_log_ = {};
  if (attempt.store)
    exchange_ = std::make_shared<LiveExchange>(LiveExchange::Options{.store = attempt.store,
                                                                     .attempt = attempt.number,
                                                                     .node = options_.node,
                                                                     .nodes = job_.nodes,
                                                                     .epoch_ms = started_ms_});
  traces_.begin();
}

void Monitor::update(std::vector<WorkerState> workers, const watch::Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  workers_ = std::move(workers);
  job_.verdict = verdict;
}

void Monitor::set_restarts(int restarts) {
  const std::lock_guard lock(mutex_);
  job_.restarts = restarts;
}

void Monitor::end_attempt(Millis report_time) {
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
  exchange->finish(Deadline::in(report_time));
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
  stop();  // else the thread might write an older state after the last one
  std::optional<CollectedTrace> trace;
  {
    const std::lock_guard lock(mutex_);
    trace = traces_.take(collector_, job_, true);
  }
  if (trace) finish_trace(*std::move(trace));
  History last;
  {
    const std::lock_guard lock(mutex_);
    job_.state = outcome;
    job_.exit_code = exit_code;
    job_.now_ms = wall_ms();
    if (!failure.empty()) job_.failure = failure;
    if (outcome == "success") job_.verdict = {};
    finished_ = true;
    last = history();
  }
  if (options_.node == 0) {
    files_.write_history(last);
    files_.write_state(last.job);
  }
  linger();
}

// A page asks for the log, the curves and the time line when it has the state: the server must outlive these requests.
void Monitor::linger() {
  if (!dashboard_) return;
  std::unique_lock lock(mutex_);
  if (Clock::now() - asked_ > kPageOpenTime) return;
  changed_.wait_for(lock, kFinalStateTime, [this]() TRIREME_REQUIRES(mutex_) { return final_state_taken_; });
  const Deadline end = Deadline::in(kLastRequestsTime);
  while (final_state_taken_ && !end.passed() && Clock::now() < asked_ + options_.quiet_time)
    changed_.wait_until(lock, std::min(asked_ + options_.quiet_time, end.time()));
  lock.unlock();
  dashboard_->drain(Deadline::in(kDrainTime));
}

// --- the thread

void Monitor::run() {
  std::string logged;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    try {
      turn();
    } catch (const std::exception& error) {
      if (logged != error.what())
        log_warning("the page and the files in {} miss an update: {}; the job goes on", options_.log_dir,
                    printable(error.what()));
      logged = error.what();
    }
    lock.lock();
    const Millis longest = traces_.active() ? kTracedReadPeriod : kMaxReadPeriod;
    changed_.wait_for(lock, std::min(period_, longest), [this]() TRIREME_REQUIRES(mutex_) { return stop_; });
  }
}

void Monitor::turn() {
  std::optional<CollectedTrace> trace;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    const size_t found = collector_.read_events();
    if (found > watch::Ring::kEvents / 4) period_ = std::max(kMinReadPeriod, period_ / 2);
    if (found < watch::Ring::kEvents / 16) period_ = std::min(kMaxReadPeriod, period_ * 2);
    if (!next_look_.passed()) return;
    next_look_ = Deadline::in(kLookPeriod);
    look(watch::now_ns());
    trace = traces_.take(collector_, job_, false);
  }
  if (trace) finish_trace(*std::move(trace));
  if (options_.node == 0) write_files();
}

void Monitor::write_files() {
  JobView job;
  std::optional<History> due;
  {
    const std::lock_guard lock(mutex_);
    job = job_;
    if (next_history_.passed()) {
      next_history_ = Deadline::in(kHistoryPeriod);
      due = history();
    }
  }
  files_.write_state(job);
  if (options_.on_look) options_.on_look(job);
  if (due) files_.write_history(*due);
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
  for (auto& [node, trace] : exchange_->take_traces()) traces_.add(node, std::move(trace));
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

void Monitor::publish_trace() {
  if (!exchange_) return;
  if (const auto part = traces_.part_to_send(collector_)) exchange_->publish_trace(*part);
}

void Monitor::finish_trace(CollectedTrace trace) {
  std::string result = write_trace(files_, options_.job_id, std::move(trace));
  const std::lock_guard lock(mutex_);
  job_.trace = std::move(result);
}

// --- the page's requests

void Monitor::note_request() {
  asked_ = Clock::now();
  changed_.notify_all();
}

std::string Monitor::state() {
  std::unique_lock lock(mutex_);
  note_request();
  final_state_taken_ = finished_;
  const JobView job = job_;
  lock.unlock();
  return state_json(job);
}

const std::map<std::string, Curve>* Monitor::values_of(int rank) const {
  if (const RankHistory* const history = collector_.history(rank)) return &history->curves();
  const auto remote = remote_curves_.find(rank);
  return remote == remote_curves_.end() ? nullptr : &remote->second;
}

NamedCurves Monitor::curves_of(std::optional<int> rank) {
  constexpr int kJob = -1;
  NamedCurves curves;
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
  note_request();
  const NamedCurves curves = curves_of(rank);
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
  note_request();
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
  std::unique_lock lock(mutex_);
  note_request();
  const auto facts =
      std::find_if(world_.begin(), world_.end(), [&](const RankFacts& known) { return known.rank == rank; });
  if (facts == world_.end()) return std::nullopt;
  LogTail tail{.rank = rank, .path = facts->log};
  const bool is_local = facts->node == options_.node;
  if (!is_local && exchange_) exchange_->want_log(rank);
  if (!is_local && remote_log_.rank == rank) tail = remote_log_;
  lock.unlock();
  if (is_local) tail.text = log_tail(tail.path);
  return log_json(tail);
}

std::string Monitor::metrics() {
  std::unique_lock lock(mutex_);
  const JobView job = job_;
  lock.unlock();
  return metrics_text(job);
}

std::string Monitor::progress() {
  std::unique_lock lock(mutex_);
  const JobView job = job_;
  lock.unlock();
  return progress_json(job);
}

History Monitor::history() {
  std::vector<int> ranks;
  for (const RankFacts& facts : world_)
    if (ranks.size() < kHistoryRanks) ranks.push_back(facts.rank);
  return {
      .job = job_, .curves = curves_of(std::nullopt), .timelines = timelines_of(ranks, kPageSpans), .world = world_};
}

}  // namespace trireme::launch
