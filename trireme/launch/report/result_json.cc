// How a job and its workers ended, for machines and for the way between nodes.
#include <fmt/chrono.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/report/failure_report.h"

namespace trireme::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostLinesKept = 30;
constexpr size_t kMostLinesOnTheWire = 1000;

const char* word(Outcome outcome) {
  switch (outcome) {
    case Outcome::success:
      return "success";
    case Outcome::failure:
      return "failure";
    case Outcome::interrupted:
      break;
  }
  return "interrupted";
}

// 2026-08-03T14:05:09.120Z
std::string utc(JobResult::Time time) {
  const auto millis = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const auto seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), ((millis % 1000) + 1000) % 1000);
}

std::vector<std::string> printable_tail(const std::vector<std::string>& lines, size_t most) {
  std::vector<std::string> tail;
  for (size_t i = lines.size() - std::min(lines.size(), most); i < lines.size(); ++i)
    tail.push_back(printable(lines[i]));
  return tail;
}

std::string fate(const WorkerEnding& worker) {
  if (worker.unkillable) return "survived SIGKILL and was left behind";
  return printable(diagnose(worker).words);
}

std::string cause(const WorkerEnding& worker) {
  if (worker.unkillable) return "unkillable";
  return worker.stopped ? "stopped" : diagnose(worker).cause;
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

Json culprit_json(const JobResult& result) {
  for (const WorkerEnding& worker : result.workers) {
    if (worker.rank != result.culprit) continue;
    Json object = worker_json(worker);
    object["advice"] = diagnose(worker).advice;
    if (!worker.awaited_by.empty()) {
      object["awaited_by"] = worker.awaited_by;
      object["awaited_in"] = printable(worker.awaited_in);
    }
    object["last_lines"] = printable_tail(worker.last_lines, kMostLinesKept);
    return object;
  }
  return nullptr;
}

std::string dumped(const Json& object, int indent) {
  return object.dump(indent, ' ', false, Json::error_handler_t::replace);
}

int number(const Json& object, const char* name, int high) {
  const Json& value = object.at(name);
  if (!value.is_number_integer() || value < 0 || value > high)
    throw PeerError("a worker's ending has \"{}\" {}, which is not a number from 0 to {}", name,
                    printable(value.dump(-1, ' ', true).substr(0, 80)), high);
  return value.get<int>();
}

Ending read_ending(const Json& object) {
  Ending ending;
  object.at("exited").get_to(ending.exited);
  ending.code = number(object, "code", 255);
  ending.signal = number(object, "signal", 127);
  object.at("core_dumped").get_to(ending.core_dumped);
  object.at("out_of_memory_kill").get_to(ending.out_of_memory_kill);
  ending.exec_errno = number(object, "exec_errno", 4095);
  return ending;
}

WorkerEnding read_worker(const Json& object) {
  constexpr int kAny = std::numeric_limits<int>::max();
  WorkerEnding worker;
  worker.rank = number(object, "rank", kAny);
  worker.local_rank = number(object, "local_rank", kAny);
  object.at("host").get_to(worker.host);
  worker.pid = number(object, "pid", kAny);
  worker.ending = read_ending(object.at("ending"));
  object.at("log").get_to(worker.log);
  object.at("last_lines").get_to(worker.last_lines);
  object.at("stopped").get_to(worker.stopped);
  object.at("unkillable").get_to(worker.unkillable);
  object.at("seconds").get_to(worker.seconds);
  object.at("awaited_by").get_to(worker.awaited_by);
  object.at("awaited_in").get_to(worker.awaited_in);
  return worker;
}

}  // namespace

std::string result_json(const JobResult& result) {
  Json workers = Json::array();
  for (const WorkerEnding& worker : result.workers) workers.push_back(worker_json(worker));
  const double seconds = std::chrono::duration<double>(result.ended - result.started).count();
  const Json object = {{"job_id", printable(result.job_id)},
                       {"outcome", word(result.outcome)},
                       {"exit_code", result.exit_code},
                       {"reason", printable(result.reason)},
                       {"culprit", culprit_json(result)},
                       {"restarts", result.restarts},
                       {"started", utc(result.started)},
                       {"ended", utc(result.ended)},
                       {"seconds", seconds},
                       {"workers", workers}};
  return dumped(object, 2) + "\n";
}

std::string to_json(const WorkerEnding& worker) {
  const Ending& how = worker.ending;
  const Json ending = {{"exited", how.exited},
                       {"code", how.code},
                       {"signal", how.signal},
                       {"core_dumped", how.core_dumped},
                       {"out_of_memory_kill", how.out_of_memory_kill},
                       {"exec_errno", how.exec_errno}};
  const Json object = {{"rank", worker.rank},
                       {"local_rank", worker.local_rank},
                       {"host", worker.host},
                       {"pid", worker.pid},
                       {"ending", ending},
                       {"log", worker.log},
                       {"last_lines", printable_tail(worker.last_lines, kMostLinesOnTheWire)},
                       {"stopped", worker.stopped},
                       {"unkillable", worker.unkillable},
                       {"seconds", worker.seconds},
                       {"awaited_by", worker.awaited_by},
                       {"awaited_in", printable(worker.awaited_in)}};
  return dumped(object, -1);
}

WorkerEnding worker_ending_from_json(const std::string& text) try {
  return read_worker(Json::parse(text));
} catch (const Json::exception& error) {
  throw PeerError("not a worker's ending: {}", printable(error.what()));
}

}  // namespace trireme::launch
