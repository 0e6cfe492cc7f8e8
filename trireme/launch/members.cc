#include "trireme/launch/members.h"

#include <utility>

#include "trireme/core/backoff.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::launch {
namespace {

std::string reason_of(const JobOutcome& outcome) {
  return outcome.culprit ? "a worker failed" : outcome.reason;
}

double in_seconds(Millis time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Members::Members(const Request& request, const Seat& seat, const NodeInfo& self, std::unique_ptr<Meeting> meeting)
    : request_(request),
      seat_(seat),
      self_(self),
      meeting_(std::move(meeting)),
      attempt_(meeting_->attempt()),
      restarts_(meeting_->restarts()) {
  self_.log_dir = meeting_->nodes()[static_cast<size_t>(meeting_->node())].log_dir;
  note("");
}

std::optional<JobOutcome> Members::find_next(Step step, const JobOutcome& why, const Hooks& hooks) {
  if (!meeting_->rules().on) {
    ++attempt_;
    return std::nullopt;
  }
  const std::vector<std::string> names = meeting_->names();
  const auto over = step == Step::rejoin ? rejoin(why, hooks) : gather(why, hooks);
  if (over) return over;
  attempt_ = meeting_->attempt();
  restarts_ = meeting_->restarts();
  if (names != meeting_->names()) note(reason_of(why));
  return std::nullopt;
}

JobPast Members::past(const JobOutcome& why) const {
  return {.attempt = attempt_ + 1,
          .restarts = restarts_,
          .members = 0,
          .departure = reason_of(why),
          .token = meeting_->token()};
}

std::optional<JobOutcome> Members::gather(const JobOutcome& why, const Hooks& hooks) {
  const auto over = meeting_->gather_again(past(why), hooks.objection);
  const bool lost = over && over->kind == JobOutcome::Kind::node_lost && over->coordinator;
  return lost ? rejoin(*over, hooks) : over;
}

// The coordinator is lost. Another node may take its place, or it comes back: then this node is a newcomer.
std::optional<JobOutcome> Members::rejoin(const JobOutcome& why, const Hooks& hooks) {
  JobPast known = past(why);
  known.members = static_cast<int>(meeting_->nodes().size()) - 1;
  Seat seat = seat_;
  seat.may_host = seat.may_host || request_.etcd.has_value();
  const Deadline deadline = Deadline::in(rejoin_time(request_));
  known.deadline = deadline;
  log_warning("{}; looks for the job for up to {:g} s", why.reason, in_seconds(rejoin_time(request_)));
  meeting_.reset();
  const SignalWatch watch(hooks.signals, hooks.away);
  for (Backoff backoff(Millis(200), Millis(1000));; backoff.pause(deadline)) {
    try {
      meeting_ = Meeting::with_others(request_, seat, self_, std::nullopt, known);
      return std::nullopt;
    } catch (const UsageError& error) {
      return JobOutcome::abort(error.what(), error.exit_code());
    } catch (const Error& error) {  // the network of this machine may be down
      if (deadline.passed()) return not_found(why, error);
      log_debug("{}", error.what());
    }
  }
}

JobOutcome Members::not_found(const JobOutcome& why, const Error& error) const {
  const char* advice = request_.etcd ? "are etcd and the other nodes up?"
                                     : "start it again there at once, or use --master etcd://HOST:PORT: then another "
                                       "node takes its place";
  return JobOutcome::lost(fmt::format("{}; it hosts the job's store, and this node could not reach it again ({}): {}",
                                      why.reason, error.what(), advice));
}

void Members::note(const std::string& why) {
  Membership membership{.attempt = attempt_, .hosts = {}, .why = why, .since = std::chrono::system_clock::now()};
  std::vector<std::string> arrivals;
  std::set<std::string> addresses;
  const auto& nodes = meeting_->nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    membership.hosts.push_back(nodes[i].host);
    membership.ranks += nodes[i].processes;
    addresses.insert(nodes[i].address);
    if (!addresses_.empty() && !addresses_.contains(nodes[i].address))
      arrivals.push_back(node_words(static_cast<int>(i), nodes[i]));
  }
  addresses_ = std::move(addresses);
  if (attempt_ > 0) log_info("{}", membership_line(membership, arrivals, meeting_->node()));
  by_attempt_.push_back(std::move(membership));
}

}  // namespace trireme::launch
