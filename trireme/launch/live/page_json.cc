#include "trireme/launch/live/page_json.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/core/whole_numbers.h"

namespace trireme::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMaxWait = 1e9;  // seconds

std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Not known, or not a number: null. Six digits are enough for a page.
Json number(double value, bool unknown_below_0 = true) {
  if (!std::isfinite(value) || (unknown_below_0 && value < 0)) return nullptr;
  return value;
}

Json whole(int64_t value) {
  return value < 0 ? Json() : Json(value);
}

Json values_object(const std::map<std::string, double>& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[printable(name)] = number(value, false);
  return object;
}

Json shares_array(const Shares& shares) {
  return Json::array({shares.compute, shares.communication, shares.data, shares.background});
}

Json phases_array(const PhaseTimes& phases) {
  return Json::array({number(phases.data), number(phases.forward), number(phases.backward), number(phases.optimizer)});
}

Json operations_array(const std::map<std::string, OperationTotals>& operations) {
  Json array = Json::array();
  for (const auto& [name, totals] : operations)
    array.push_back(
        {{"name", name}, {"count", totals.count}, {"bytes", totals.bytes}, {"seconds", number(totals.seconds)}});
  return array;
}

Json rank_object(const RankView& rank) {
  return {{"rank", rank.rank},
          {"node", rank.node},
          {"host", printable(rank.host)},
          {"device", rank.device},
          {"pid", rank.pid},
          {"state", printable(rank.state)},
          {"ended", rank.ended},
          {"failed", rank.failed},
          {"records", rank.records},
          {"step", whole(rank.step)},
          {"epoch", rank.goal.epoch},
          {"epochs", rank.goal.epochs},
          {"last_step", rank.goal.last_step},
          {"steps_per_second", number(rank.steps_per_second)},
          {"samples_per_second", number(rank.samples_per_second)},
          {"cpu", number(rank.cpu)},
          {"memory", number(rank.memory)},
          {"shares", rank.records ? shares_array(rank.shares) : Json()},
          {"phases", phases_array(rank.phases)},
          {"activity", printable(rank.activity)},
          {"waits_ms", rank.waits_ms},
          {"lost", rank.lost},
          {"values", values_object(rank.values)}};
}

Json verdict_object(const watch::Verdict& verdict) {
  if (verdict.kind == watch::Verdict::Kind::none) return nullptr;
  std::vector<std::string> details;
  for (const std::string& line : verdict.details) details.push_back(printable(line));
  return {{"kind", watch::to_string(verdict.kind)},
          {"proven", verdict.proven},
          {"rank", verdict.culprit ? Json(*verdict.culprit) : Json()},
          {"seconds", static_cast<double>(verdict.waited_ms) / 1000},
          {"words", printable(verdict.words)},
          {"details", details},
          {"advice", printable(verdict.advice)}};
}

std::string text_in(const Json& object, const char* name) {
  return printable(object.at(name).get<std::string>());
}

double number_in(const Json& object, const char* name) {
  const Json& value = object.at(name);
  return value.is_null() ? kUnknown : value.get<double>();
}

int64_t whole_in(const Json& object, const char* name) {
  const Json& value = object.at(name);
  return value.is_null() ? -1 : value.get<int64_t>();
}

Shares shares_from(const Json& array) {
  if (array.is_null()) return {};
  return {.compute = array.at(0), .communication = array.at(1), .data = array.at(2), .background = array.at(3)};
}

PhaseTimes phases_from(const Json& array) {
  const auto ms = [&](size_t place) { return array.at(place).is_null() ? kUnknown : array.at(place).get<double>(); };
  return {.data = ms(0), .forward = ms(1), .backward = ms(2), .optimizer = ms(3)};
}

RankView rank_from(const Json& object) {
  RankView rank{
      .rank = object.at("rank"),
      .node = object.at("node"),
      .host = text_in(object, "host"),
      .device = text_in(object, "device"),
      .pid = object.at("pid"),
      .state = text_in(object, "state"),
      .ended = object.at("ended"),
      .failed = object.at("failed"),
      .records = object.at("records"),
      .step = whole_in(object, "step"),
      .goal = {.epoch = object.at("epoch"), .epochs = object.at("epochs"), .last_step = object.at("last_step")},
      .steps_per_second = number_in(object, "steps_per_second"),
      .samples_per_second = number_in(object, "samples_per_second"),
      .cpu = number_in(object, "cpu"),
      .memory = number_in(object, "memory"),
      .shares = shares_from(object.at("shares")),
      .phases = phases_from(object.at("phases")),
      .activity = text_in(object, "activity"),
      .waits_ms = object.at("waits_ms"),
      .lost = object.at("lost")};
  for (const auto& [name, value] : object.at("values").items())
    rank.values[printable(name)] = value.is_null() ? std::nan("") : value.get<double>();
  return rank;
}

// Without the kind, which `trireme top` does not show.
watch::Verdict verdict_from(const Json& object) {
  if (object.is_null()) return {};
  watch::Verdict verdict{
      .proven = object.at("proven"),
      .waited_ms = static_cast<int64_t>(1000 * std::clamp(number_in(object, "seconds"), 0.0, kMaxWait)),
      .words = text_in(object, "words"),
      .advice = text_in(object, "advice")};
  if (!object.at("rank").is_null()) verdict.culprit = object.at("rank").get<int>();
  for (const Json& line : object.at("details")) verdict.details.push_back(printable(line.get<std::string>()));
  return verdict;
}

Json totals_object(const JobTotals& totals) {
  const auto left = seconds_left(totals);
  const auto known = [](int64_t value) { return value > 0 ? Json(value) : Json(); };
  return {{"step", whole(totals.step)},
          {"last_step", known(totals.goal.last_step)},
          {"epoch", known(totals.goal.epoch)},
          {"epochs", known(totals.goal.epochs)},
          {"seconds_left", left ? Json(*left) : Json()},
          {"steps_per_second", number(totals.steps_per_second)},
          {"samples_per_second", number(totals.samples_per_second)},
          {"shares", shares_array(totals.shares)},
          {"slowest", totals.slowest ? Json(*totals.slowest) : Json()},
          {"values", values_object(totals.values)}};
}

}  // namespace

std::string utc_text(int64_t ms_since_1970) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(ms_since_1970 / 1000)));
}

std::string state_json(const JobView& job) {
  const JobTotals totals = totals_of(job.ranks);
  Json ranks = Json::array();
  for (const RankView& rank : job.ranks) ranks.push_back(rank_object(rank));
  return dump({{"version", kVersion},
               {"job_id", printable(job.job_id)},
               {"program", printable(job.program)},
               {"host", printable(job.host)},
               {"nodes", job.nodes},
               {"world_size", job.world_size},
               {"restarts", job.restarts},
               {"state", job.state},
               {"exit_code", job.exit_code},
               {"started_ms", job.started_ms},
               {"now_ms", job.now_ms},
               {"totals", totals_object(totals)},
               {"ranks", ranks},
               {"operations", operations_array(totals.operations)},
               {"verdict", verdict_object(job.verdict)},
               {"failure", printable_lines(job.failure)},
               {"trace", printable(job.trace)}});
}

std::optional<JobView> job_view_from_json(const std::string& text) try {
  const JobView pattern{.ranks = {RankView{.step = 0}}, .verdict = {.kind = watch::Verdict::Kind::busy, .culprit = 0}};
  const Json state = Json::parse(text);
  require_whole_numbers(state, Json::parse(state_json(pattern)));
  JobView job{.job_id = text_in(state, "job_id"),
              .program = text_in(state, "program"),
              .host = text_in(state, "host"),
              .nodes = state.at("nodes"),
              .world_size = state.at("world_size"),
              .restarts = state.at("restarts"),
              .state = text_in(state, "state"),
              .exit_code = state.at("exit_code"),
              .started_ms = state.at("started_ms"),
              .now_ms = state.at("now_ms"),
              .verdict = verdict_from(state.at("verdict")),
              .failure = printable_lines(state.at("failure").get<std::string>()),
              .trace = text_in(state, "trace")};
  for (const Json& rank : state.at("ranks")) job.ranks.push_back(rank_from(rank));
  return job;
} catch (const Json::exception&) {
  return std::nullopt;
}

std::string curves_json(const NamedCurves& curves) {
  Json object = Json::object();
  for (const auto& [name, curve] : curves) {
    Json points = Json::array();
    for (const CurvePoint& point : curve.second)
      points.push_back(Json::array({whole(point.step), point.seconds, number(point.value, false)}));
    object[printable(name)] = {{"rank", whole(curve.first)}, {"points", points}};
  }
  return dump(object);
}

std::string timelines_json(const std::vector<RankTimeline>& timelines) {
  Json all = Json::array();
  for (const RankTimeline& timeline : timelines) {
    Json spans = Json::array();
    std::vector<std::string> names;
    for (const TimelineSpan& span : timeline.spans) {
      auto name = std::find(names.begin(), names.end(), span.name);
      if (name == names.end()) name = names.insert(names.end(), span.name);
      spans.push_back(
          Json::array({span.start, span.length, span.kind, whole(span.step), name - names.begin(), span.bytes}));
    }
    for (std::string& name : names) name = printable(name);
    all.push_back({{"rank", timeline.rank}, {"now", timeline.now}, {"names", names}, {"spans", spans}});
  }
  return dump(all);
}

std::string log_json(const LogTail& log) {
  return dump({{"rank", log.rank}, {"path", printable(log.path)}, {"text", printable_lines(log.text)}});
}

std::string progress_json(const JobView& job) {
  const JobTotals totals = totals_of(job.ranks);
  Json object = totals_object(totals);
  object.erase("shares");
  Json progress{{"job_id", printable(job.job_id)},
                {"state", job.state},
                {"exit_code", job.state == "running" ? Json() : Json(job.exit_code)},
                {"started", utc_text(job.started_ms)},
                {"updated", utc_text(job.now_ms)},
                {"seconds", static_cast<double>(job.now_ms - job.started_ms) / 1000},
                {"nodes", job.nodes},
                {"ranks", job.world_size},
                {"restarts", job.restarts}};
  progress.update(object);
  progress["waits"] = job.verdict.kind == watch::Verdict::Kind::none ? Json() : Json(printable(job.verdict.words));
  return dump(progress, 2);
}

}  // namespace trireme::launch
