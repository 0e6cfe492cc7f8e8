#include "trireme/launch/report/outcome.h"

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::launch {

using nlohmann::json;

JobOutcome JobOutcome::of_culprit(const WorkerEnding& culprit) {
  JobOutcome outcome{.kind = Kind::worker_failed};
  outcome.exit_code = culprit.awaited_by.empty() ? exit_code_of(culprit.ending) : exit_code::kPeer;
  outcome.culprit = culprit;
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

JobOutcome JobOutcome::abort(const std::string& reason, int exit_code) {
  return {.kind = Kind::aborted, .exit_code = exit_code, .reason = reason};
}

std::string to_json(const JobOutcome& outcome) {
  json text{{"kind", static_cast<int>(outcome.kind)},
            {"exit_code", outcome.exit_code},
            {"signal", outcome.signal},
            {"final", outcome.final},
            {"reason", printable(outcome.reason)}};
  if (outcome.culprit) text["culprit"] = to_json(*outcome.culprit);
  return text.dump();
}

JobOutcome outcome_from_json(const std::string& text) {
  try {
    const json value = json::parse(text);
    const int kind = value.at("kind").get<int>();
    if (kind < 0 || kind > static_cast<int>(JobOutcome::Kind::aborted)) throw PeerError("kind {} is unknown", kind);
    JobOutcome outcome{.kind = static_cast<JobOutcome::Kind>(kind)};
    outcome.exit_code = value.at("exit_code").get<int>();
    outcome.signal = value.at("signal").get<int>();
    outcome.final = value.at("final").get<bool>();
    outcome.reason = value.at("reason").get<std::string>();
    if (value.contains("culprit")) outcome.culprit = worker_ending_from_json(value.at("culprit").get<std::string>());
    return outcome;
  } catch (const json::exception& error) {
    throw PeerError("a node sent an outcome that cannot be read ({}); do all nodes run the same version of Trireme?",
                    error.what());
  }
}

}  // namespace trireme::launch
