#include "trireme/launch/nodes/gathering.h"

#include <algorithm>

#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/nodes/claims.h"

namespace trireme::launch {
namespace {

constexpr Millis kArrivalLook{500};  // a departure does not end a wait for an arrival, so look for it often

class Gatherer {
 public:
  Gatherer(Store& store, const GatherOptions& options, LostNodes& departures)
      : store_(store), options_(options), departures_(departures) {}

  Roster run() {
    for (;;) {
      if (const auto reason = options_.objection(Deadline::in(Millis(0)))) return {.over = reason};
      look();
      switch (judge(gathering_, options_.rules)) {
        case Gathered::go:
          return roster();
        case Gathered::give_up:
          return gave_up();
        case Gathered::wait:
          announce_wait();
          wait_for_news();
      }
    }
  }

 private:
  bool new_job() const { return options_.departure.empty(); }

  void look() {
    for (const std::string& node : drop_departed(store_, departures_))
      if (new_job()) log_warning("{} left before the job began; it may be started again", node);
    show_refusals(store_);
    auto nodes = introductions(store_);
    const auto now = Clock::now();
    if (nodes != nodes_) changed_ = now;
    nodes_ = std::move(nodes);
    const int waiting = waiting_for_number(store_, departures_);
    const int coming = std::max(options_.expected, static_cast<int>(nodes_.size()) + waiting);
    gathering_ = {.present = static_cast<int>(nodes_.size()),
                  .expected = std::min(coming, options_.rules.max),
                  .waited = std::chrono::duration_cast<Millis>(now - began_),
                  .quiet = std::chrono::duration_cast<Millis>(now - changed_),
                  .patience = options_.patience};
    if (now < report_at_) return;
    log_info("{}", waiting_text());
    report_at_ = now + kReportEvery;
  }

  void announce_wait() {
    if (new_job() || std::exchange(announced_, true)) return;
    log_warning("{}; waiting up to {:g} s for other nodes ({} of at least {} are here)", options_.departure,
                std::chrono::duration<double>(options_.patience).count(), gathering_.present, options_.rules.min);
  }

  std::string waiting_text() {
    std::string text = missing_text(store_, options_.seat);
    if (gathering_.present >= options_.rules.min)
      text += fmt::format("; goes on with {} when no other comes for {:g} s", gathering_.present,
                          std::chrono::duration<double>(options_.rules.timeout).count());
    return text;
  }

  void wait_for_news() {
    int missing = 0;
    while (nodes_.contains(missing)) ++missing;
    const Deadline slice = Deadline::in(kArrivalLook);
    try {
      store_.get(introduction_key(missing), slice);
    } catch (const PeerError&) {
      if (!slice.passed()) throw;
    }
  }

  Roster roster() const {
    Roster roster{.attempt = options_.attempt,
                  .restarts = options_.restarts,
                  .max_restart = options_.max_restart,
                  .rules = options_.rules};
    for (const auto& [number, text] : nodes_) {
      roster.nodes.push_back(introduction_from_json(text));
      roster.attempt = std::max(roster.attempt, roster.nodes.back().attempt);
      roster.restarts = std::max(roster.restarts, roster.nodes.back().restarts);
    }
    return roster;
  }

  Roster gave_up() {
    if (new_job()) throw PeerError("{}; gave up after --join_timeout", missing_text(store_, options_.seat));
    return {.over = JobOutcome::lost(fmt::format(
                "{}; {} of at least {} nodes are left, and no other came within --elastic_timeout ({:g} s): "
                "start one in its place, or allow fewer with --nnodes MIN:MAX",
                options_.departure, nodes_.size(), options_.rules.min,
                std::chrono::duration<double>(options_.patience).count()))};
  }

  Store& store_;
  const GatherOptions& options_;
  LostNodes& departures_;
  std::map<int, std::string> nodes_;  // introductions by number
  Gathering gathering_;
  bool announced_ = false;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point changed_ = began_;
  Clock::time_point report_at_ = began_ + kFirstReport;
};

}  // namespace

Roster gather(Store& store, const GatherOptions& options, LostNodes& departures) {
  return Gatherer(store, options, departures).run();
}

}  // namespace trireme::launch
