#include "trireme/launch/report/outcome.h"

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/whole_numbers.h"

namespace trireme::launch {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobOutcome, kind, exit_code, signal, final, coordinator, at_once, reason)

JobOutcome JobOutcome::of_culprit(const WorkerEnding& culprit) {
  JobOutcome outcome{.kind = Kind::worker_failed};
  outcome.exit_code = !culprit.awaited_by.empty() ? exit_code::kPeer
                      : !culprit.hang.empty()     ? exit_code::kHang
                                                  : exit_code_of(culprit.ending);
  outcome.culprit = culprit;
  outcome.final = outcome.exit_code == exit_code::kNotFound || outcome.exit_code == exit_code::kNotExecutable;
  return outcome;
}

JobOutcome JobOutcome::of_signal(int signal, const std::string& host) {
  return {.kind = Kind::interrupted,
          .exit_code = 128 + signal,
          .signal = signal,
          .final = true,
          .reason = fmt::format("interrupted by {} on {}", signal_name(signal), host)};
}

JobOutcome JobOutcome::lost(const std::string& reason) {
  return {.kind = Kind::node_lost, .exit_code = exit_code::kPeer, .reason = reason};
}

JobOutcome JobOutcome::lost_coordinator(const std::string& reason) {
  JobOutcome outcome = lost(reason);
  outcome.coordinator = true;
  return outcome;
}

JobOutcome JobOutcome::left(int signal, const std::string& node) {
  return {.kind = Kind::node_left,
          .exit_code = exit_code::kPeer,
          .signal = signal,
          .reason = fmt::format("{} left: {}", node, signal_name(signal))};
}

JobOutcome JobOutcome::joined(const std::string& node) {
  return {.kind = Kind::node_joined, .exit_code = exit_code::kPeer, .reason = fmt::format("{} joined", node)};
}

JobOutcome JobOutcome::abort(const std::string& reason, int exit_code) {
  return {.kind = Kind::aborted, .exit_code = exit_code, .reason = reason};
}

std::string to_json(const JobOutcome& outcome) {
  json value = outcome;
  value["reason"] = printable(outcome.reason);
  if (outcome.culprit) value["culprit"] = to_json(*outcome.culprit);
  return value.dump();
}

JobOutcome outcome_from_json(const std::string& text) {
  try {
    const json value = json::parse(text);
    require_whole_numbers(value, json(JobOutcome()));
    auto outcome = value.get<JobOutcome>();
    if (outcome.kind < JobOutcome::Kind::success || outcome.kind > JobOutcome::Kind::node_joined)
      throw PeerError("kind {} is unknown", static_cast<int>(outcome.kind));
    if (value.contains("culprit")) outcome.culprit = worker_ending_from_json(value.at("culprit").get<std::string>());
    return outcome;
  } catch (const json::exception& error) {
    throw PeerError("a node sent an outcome that cannot be read ({}); do all nodes run the same version of Trireme?",
                    error.what());
  }
}

}  // namespace trireme::launch
