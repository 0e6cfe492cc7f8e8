#include "trireme/launch/hang_watch.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/watch/stillness.h"

namespace trireme::launch {
namespace {

using watch::RankSnapshot;
using watch::Verdict;

constexpr Millis kLookEvery{1'000};
constexpr Millis kNoticeAfter{10'000};
constexpr Millis kRepeatAfter{30'000};   // and three times that, and so on
constexpr Millis kForgetAfter{600'000};  // without a wait worth a line; a rank that saves waits every few minutes
constexpr Millis kMinPrompt{10};
constexpr Millis kShareAfter{5'000};  // a shorter wait does not concern the other machines
constexpr Millis kBlameAfter{1'000};
constexpr Millis kBlameLasts{5'000};
constexpr Millis kGap{5'000};  // this launcher was stopped, or its machine slept
constexpr Millis kStackTime{20'000};
constexpr Millis kStackLead{15'000};
constexpr Millis kStackPoll{100};

int64_t millis(Clock::duration time) {
  return std::chrono::duration_cast<Millis>(time).count();
}

// As watch::now_ns() counts.
int64_t nanos(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::vector<std::string> stack_of(int rank, const StackDump* stack) {
  std::vector<std::string> lines;
  if (!stack) return lines;
  lines.push_back(fmt::format("stack of rank {}:", rank));
  for (const std::string& line : stack->lines()) lines.push_back("  " + line);
  return lines;
}

}  // namespace

HangWatch::HangWatch(Options options)
    : options_(std::move(options)), watching_since_(Clock::now()), verdict_interval_(options_.timeout) {
  if (options_.timeout.count() == 0 || !options_.rings) return;
  for (const RankRings::Entry& entry : options_.rings->entries())
    locals_.push_back({.ring = entry.ring.get(), .last = {.rank = entry.rank}});
  if (options_.others) others_ = std::make_unique<RankViews>(*options_.others);
}

HangWatch::~HangWatch() = default;

Deadline HangWatch::next() const {
  if (!on() || over_) return Deadline::never();
  return pending_ ? Deadline::in(kStackPoll) : Deadline::at(looked_ + look_interval());
}

// A part of the time after which the first thing must be said or known.
Millis HangWatch::prompt_time() const {
  return std::max(kMinPrompt, std::min({options_.timeout, options_.group_timeout, options_.link_timeout}) / 4);
}

Millis HangWatch::look_interval() const {
  return std::min(kLookEvery, prompt_time());
}

std::optional<size_t> HangWatch::place_of(std::optional<int> rank) const {
  for (size_t place = 0; place < locals_.size(); ++place)
    if (rank && options_.rings->entries()[place].rank == *rank) return place;
  return std::nullopt;
}

// --- looking

// The rank itself, where the worker is a script around it. The pid in the ring may be one of another container.
int HangWatch::writer_of(const Local& local, const WatchedWorker& worker) {
  const int writer = local.ring->owner();
  return writer != 0 && watch::descends_from(writer, worker.pid) ? writer : worker.pid;
}

void HangWatch::update(Local& local, const WatchedWorker& worker, Clock::time_point now) {
  const int rank = local.last.rank;  // the worker could write another one
  const auto before = local.last.state;
  local.last = watch::take_snapshot(*local.ring, nanos(now), millis(now - watching_since_));
  local.last.rank = rank;
  const bool held_by_us =
      pending_ && pending_->stack && pending_->stack->running() && place_of(rank) == pending_->worker;
  if (worker.ended)
    local.last.state = worker.succeeded ? watch::ProcessState::exited : watch::ProcessState::dead;
  else if (held_by_us)
    local.last.state = before;
  else if (worker.pid != 0)
    local.last.state = watch::read_process_state(writer_of(local, worker));
  if (local.last.state != watch::ProcessState::stopped)
    local.stopped_since.reset();
  else if (!local.stopped_since)
    local.stopped_since = now;
  if (local.stopped_since) local.last.stopped_ms = millis(now - std::max(*local.stopped_since, watching_since_));
}

std::vector<RankSnapshot> HangWatch::snapshots(const std::vector<WatchedWorker>& workers, Clock::time_point now) {
  if (looked_ != Clock::time_point{} && now - looked_ > kGap) watching_since_ = now;
  looked_ = now;
  std::vector<RankSnapshot> ranks;
  for (size_t place = 0; place < locals_.size(); ++place) {
    update(locals_[place], workers.at(place), now);
    ranks.push_back(locals_[place].last);
  }
  waited_ = Millis(watch::longest_wait_ms(ranks));
  if (!others_) return ranks;
  others_->publish(ranks, concerns_others(ranks));
  for (RankSnapshot& rank : others_->others(now)) ranks.push_back(std::move(rank));
  return ranks;
}

bool HangWatch::concerns_others(const std::vector<RankSnapshot>& ranks) const {
  const int64_t enough = std::min(kShareAfter, prompt_time()).count();
  return watch::longest_wait_ms(ranks) >= enough ||
         watch::judge_stillness(ranks, {.still_ms = enough}).kind != Verdict::Kind::none;
}

std::vector<int> HangWatch::nodes_to_try(Clock::time_point now) const {
  return others_ && waited_ >= prompt_time() ? others_->answering(now) : std::vector<int>();
}

Verdict HangWatch::judge_after(Millis time, const std::vector<RankSnapshot>& ranks) const {
  Verdict waits = watch::judge(ranks, {.waited_ms = time.count()});
  if (waits.kind != Verdict::Kind::none) return waits;
  return watch::judge_stillness(ranks, {.still_ms = time.count(), .world_size = options_.world_size});
}

void HangWatch::look(const std::vector<WatchedWorker>& workers, Clock::time_point now) {
  if (!on() || over_) return;
  const bool stack_ready = pending_ && (!pending_->stack || pending_->stack->done());
  const bool due = pending_ && now >= pending_->due && (stack_ready || pending_->verdict.proven);
  if (!due && now < looked_ + look_interval()) return;
  const auto ranks = snapshots(workers, now);
  note_blame(ranks, now);
  say_stack_of_others();
  if (due) return end_verdict(ranks, now);
  say_waits(ranks, now);
  if (!pending_) consider_verdict(ranks, workers, now);
}

// A debugger needs seconds to read the symbols of libtorch, so it starts before the verdict is due.
void HangWatch::consider_verdict(const std::vector<RankSnapshot>& ranks, const std::vector<WatchedWorker>& workers,
                                 Clock::time_point now) {
  const Millis lead = std::min(kStackLead, options_.timeout / 2);
  const Verdict verdict = judge_after(options_.timeout - lead, ranks);
  if (verdict.kind == Verdict::Kind::none) {
    verdict_interval_ = options_.timeout;
    next_verdict_ = {};
  } else if (now >= next_verdict_ || (verdict.proven && place_of(verdict.culprit))) {
    begin_verdict(verdict, workers, now);
  }
}

// Once a rank has failed, others wait because of that.
void HangWatch::note_blame(const std::vector<RankSnapshot>& ranks, Clock::time_point now) {
  const auto failed = [](const RankSnapshot& rank) { return rank.state == watch::ProcessState::dead; };
  if (std::any_of(ranks.begin(), ranks.end(), failed)) return;
  const int64_t enough = std::min(kBlameAfter, prompt_time()).count();
  const Verdict verdict = watch::judge(ranks, {.waited_ms = enough});
  if (!verdict.culprit) return;
  for (const RankSnapshot& rank : ranks)
    if (const int64_t waits = watch::longest_wait_ms({rank}); waits >= enough)
      blames_[rank.rank] = {verdict, now, now - Millis(waits)};
}

std::optional<Verdict> HangWatch::blame_for(int victim, Clock::time_point gave_up) const {
  const auto found = blames_.find(victim);
  if (found == blames_.end() || found->second.when + kBlameLasts < gave_up) return std::nullopt;
  // A shorter wait ended for another reason: a broken connection, say.
  if (gave_up - found->second.since < options_.group_timeout * 3 / 4) return std::nullopt;
  const Verdict& verdict = found->second.verdict;
  return verdict.culprit == victim ? std::nullopt : std::optional(verdict);
}

// --- saying

void HangWatch::say_waits(const std::vector<RankSnapshot>& ranks, Clock::time_point now) {
  verdict_ = watch::judge(ranks, {.waited_ms = std::min(kNoticeAfter, options_.timeout / 2).count()});
  if (verdict_.kind == Verdict::Kind::none) {
    verdict_ = judge_after(options_.timeout, ranks);  // a step may take longer than 10 s
    if (now - waited_at_ > kForgetAfter) said_.clear();
    return;
  }
  waited_at_ = now;
  const Verdict& verdict = verdict_;
  // A slow rank is not named anew in every step.
  auto& said = said_[fmt::format("{} {}", watch::to_string(verdict.kind), verdict.culprit.value_or(-1))];
  if (now < said.again) return;
  said.interval = said.interval.count() == 0 ? kRepeatAfter : 3 * said.interval;
  said.again = now + said.interval;
  log_warning("{}", verdict.words);
}

// Its own launcher has printed it with its verdict.
void HangWatch::say_stack_of_others() {
  if (!others_) return;
  for (const std::string& line : others_->take_stack()) log_warning("  {}", printable(line));
}

void HangWatch::begin_verdict(const Verdict& verdict, const std::vector<WatchedWorker>& workers,
                              Clock::time_point now) {
  next_verdict_ = now + verdict_interval_;
  verdict_interval_ *= 2;
  const Millis left(std::max<int64_t>(0, options_.timeout.count() - verdict.waited_ms));
  pending_.emplace(
      Pending{.verdict = verdict, .due = now + left, .stack = nullptr, .worker = place_of(verdict.culprit)});
  if (!pending_->worker || workers[*pending_->worker].ended) return;
  const int pid = writer_of(locals_[*pending_->worker], workers[*pending_->worker]);
  if (pid != 0 && locals_[*pending_->worker].last.state != watch::ProcessState::traced)
    pending_->stack = std::make_unique<StackDump>(pid, Deadline::in(kStackTime));
}

void HangWatch::end_verdict(const std::vector<RankSnapshot>& ranks, Clock::time_point now) {
  const Verdict verdict = judge_after(options_.timeout, ranks);
  const bool same = verdict.kind == pending_->verdict.kind && verdict.culprit == pending_->verdict.culprit;
  // A stop may be seen a look later than the wait that it causes.
  if (same && pending_->verdict.proven && !verdict.proven && now < pending_->due + 2 * kLookEvery) return;
  const Pending pending = std::move(*pending_);
  pending_.reset();
  if (!same) return;  // the job went on meanwhile
  const std::vector<std::string> stack = stack_of(verdict.culprit.value_or(-1), pending.stack.get());
  std::vector<std::string> details = verdict.details;
  details.insert(details.end(), stack.begin(), stack.end());
  if (verdict.proven && pending.worker) {
    over_ = true;
    proven_ = ProvenHang{*pending.worker, verdict.fault, verdict.advice, details};
    return;  // the failure screen says it all
  }
  log_warning("no progress for {} s: {}", verdict.waited_ms / 1000, verdict.words);
  for (const std::string& line : details) log_warning("  {}", printable(line));
  if (others_ && options_.others->node != 0 && !stack.empty()) others_->show_stack(stack);
  log_warning("  {}{}", verdict.advice, verdict.proven ? "" : " The job is not ended.");
}

bool HangWatch::release() {
  const bool held = pending_ && pending_->stack && pending_->stack->running();
  pending_.reset();
  return held;
}

std::optional<ProvenHang> HangWatch::take_proven() {
  return std::exchange(proven_, std::nullopt);
}

}  // namespace trireme::launch
