// How a job and its workers ended, for machines and for the way between nodes.
#include <fmt/chrono.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/whole_numbers.h"
#include "trireme/launch/report/failure_report.h"

namespace trireme::launch {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ending, exited, code, signal, core_dumped, out_of_memory_kill, exec_errno)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerEnding, rank, local_rank, host, pid, ending, log, last_lines, stopped,
                                   unkillable, seconds, awaited_by, awaited_in, hang, hang_advice, hang_details)

namespace {

using Json = nlohmann::ordered_json;

// 2026-08-03T14:05:09.120Z
std::string utc(JobResult::Time time) {
  const auto millis = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const auto seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), ((millis % 1000) + 1000) % 1000);
}

std::vector<std::string> printable_tail(const std::vector<std::string>& lines) {
  std::vector<std::string> tail;
  for (size_t i = lines.size() - std::min(lines.size(), kShownLines); i < lines.size(); ++i)
    tail.push_back(printable(lines[i]));
  return tail;
}

std::vector<std::string> printable_all(std::vector<std::string> lines) {
  for (std::string& line : lines) line = printable(line);
  return lines;
}

std::string fate(const WorkerEnding& worker) {
  if (worker.unkillable) return "survived SIGKILL and was left behind";
  return printable(diagnose(worker).words);
}

std::string cause(const WorkerEnding& worker) {
  if (worker.unkillable) return "unkillable";
  return worker.stopped && worker.hang.empty() ? "stopped" : diagnose(worker).cause;
}

Json worker_json(const WorkerEnding& worker) {
  return Json{{"rank", worker.rank},
              {"local_rank", worker.local_rank},
              {"host", printable(worker.host)},
              {"pid", worker.pid},
              {"cause", cause(worker)},
              {"words", fate(worker)},
              {"exit_code", worker.unkillable ? Json() : Json(exit_code_of(worker.ending))},
              {"signal", worker.ending.signal ? Json(worker.ending.signal) : Json()},
              {"stopped", worker.stopped},
              {"seconds", worker.seconds},
              {"log", printable(worker.log)}};
}

Json memberships_json(const std::vector<Membership>& memberships) {
  Json list = Json::array();
  for (const Membership& membership : memberships)
    list.push_back(Json{{"attempt", membership.attempt},
                        {"nodes", printable_all(membership.hosts)},
                        {"ranks", membership.ranks},
                        {"why", printable(membership.why)},
                        {"since", utc(membership.since)}});
  return list;
}

Json culprit_json(const JobResult& result) {
  for (const WorkerEnding& worker : result.workers) {
    if (worker.rank != result.culprit) continue;
    Json object = worker_json(worker);
    object["advice"] = diagnose(worker).advice;
    if (!worker.awaited_by.empty()) {
      object["awaited_by"] = worker.awaited_by;
      object["awaited_in"] = printable(worker.awaited_in);
    }
    if (!worker.hang.empty()) object["details"] = printable_all(worker.hang_details);
    object["last_lines"] = printable_tail(worker.last_lines);
    return object;
  }
  return nullptr;
}

void check_number(const json& object, const char* name, int high) {
  const json& value = object.at(name);
  if (!value.is_number_integer() || value < 0 || value > high)
    throw PeerError("a worker's ending has \"{}\" {}, which is not a number from 0 to {}", name,
                    printable(value.dump(-1, ' ', true).substr(0, 80)), high);
}

}  // namespace

const char* word_of(Outcome outcome) {
  constexpr const char* kWords[] = {"success", "failure", "interrupted"};
  return kWords[static_cast<size_t>(outcome)];
}

std::string result_json(const JobResult& result) {
  Json workers = Json::array();
  for (const WorkerEnding& worker : result.workers) workers.push_back(worker_json(worker));
  const double seconds = std::chrono::duration<double>(result.ended - result.started).count();
  const Json object = {{"job_id", printable(result.job_id)},
                       {"outcome", word_of(result.outcome)},
                       {"exit_code", result.exit_code},
                       {"reason", printable(result.reason)},
                       {"culprit", culprit_json(result)},
                       {"restarts", result.restarts},
                       {"memberships", memberships_json(result.memberships)},
                       {"started", utc(result.started)},
                       {"ended", utc(result.ended)},
                       {"seconds", seconds},
                       {"workers", workers}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_json(const WorkerEnding& worker) {
  return json(worker).dump(-1, ' ', false, json::error_handler_t::replace);
}

WorkerEnding worker_ending_from_json(const std::string& text) try {
  const json object = json::parse(text);
  for (const char* name : {"rank", "local_rank", "pid"}) check_number(object, name, std::numeric_limits<int>::max());
  const json& ending = object.at("ending");
  check_number(ending, "code", 255);
  check_number(ending, "signal", 127);
  check_number(ending, "exec_errno", 4095);
  require_whole_numbers(object, json(WorkerEnding{.awaited_by = {0}}));
  return object.get<WorkerEnding>();
} catch (const json::exception& error) {
  throw PeerError("not a worker's ending: {}", printable(error.what()));
}

}  // namespace trireme::launch
