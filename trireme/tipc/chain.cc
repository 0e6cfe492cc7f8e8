#include "trireme/tipc/chain.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/owner_lock.h"
#include "trireme/core/text.h"
#include "trireme/tipc/outdated.h"
#include "trireme/tipc/report.h"

namespace trireme::tipc {
namespace {

namespace fs = std::filesystem;

Tone tone_of(const Result& result) {
  if (result.kind == Result::Kind::passed) return Tone::good;
  return result.kind == Result::Kind::failed ? Tone::bad : Tone::notice;
}

/// The number of this machine; 0 when it is alone or the first everywhere.
int node_of(const PlanOptions& plan) {
  return plan.nodes.empty() ? 0 : *std::max_element(plan.nodes.begin(), plan.nodes.end());
}

/// A training that says nothing of its speed has failed as a measurement.
/// By what process 0 says, which is on the first machine.
std::optional<Measurement> measure(const Step& step, Result& result) {
  if (!step.measured || step.node != 0 || result.kind != Result::Kind::passed) return std::nullopt;
  std::ifstream log(step.log);
  if (const auto throughput = parse_throughput(log)) return Measurement{*step.measured, *throughput, result.seconds};
  result.kind = Result::Kind::failed;
  result.reason = "no line with `ips:` in its log";
  return std::nullopt;
}

void write_report(const fs::path& file, std::string_view text) {
  write_file_atomically(file, text, {.durable = false});
}

}  // namespace

Chain::Chain(const Case& test, Mode mode, ChainOptions options)
    : test_(test),
      mode_(mode),
      options_(std::move(options)),
      folder_(output_folder(test_, mode_, options_.plan)),
      steps_(make_plan(test_, mode_, options_.plan)) {}

int Chain::run() {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) throw SystemError(failed.value(), "cannot make the folder {}", folder_.string());
  const OwnerLock lock(file(".chain", ".lock"));  // a machine each, as they may share the folder
  if (const auto& owner = lock.held_by())
    throw UsageError("{} is in use: {} runs a chain into it, and two would replace each other's results; wait for it",
                     folder_.string(), *owner);
  write_report(file("results_cpp", ".log"), "");
  remove_old_results();
  Runner runner({.folder = folder_,
                 .timeout = options_.timeout,
                 .grace = options_.grace,
                 .output = options_.output,
                 .begun = [this](const Step& step) { begun(step); },
                 .ended = [this](const Step& step, Result& result) { ended(step, result); }});
  const std::vector<Result> results = runner.run(steps_);
  if (!measurements_.empty()) say(Tone::plain, "\n" + std::string(trim(speedup_table(measurements_))));
  write(file("junit", ".xml"), junit_xml(fmt::format("{}.{}", test_.model_name, to_string(mode_)), steps_, results));
  say(Tone::plain, "\n" + summary(steps_, results));
  const int code = exit_code(runner, results);
  return code == 0 && !unwritten_.empty() ? trireme::exit_code::kSystem : code;
}

fs::path Chain::file(const std::string& stem, const std::string& ending) const {
  const int node = node_of(options_.plan);
  return folder_ / (node == 0 ? stem + ending : fmt::format("{}.node{}{}", stem, node, ending));
}

/// So that what is there at the end is of this chain, however far it came.
void Chain::remove_old_results() const {
  remove_old_logs(folder_, steps_);
  remove_inside(folder_, file("junit", ".xml"));
  for (const Step& step : steps_)
    if (step.measured) remove_inside(folder_, file(step.group, ".json"));
}

void Chain::begun(const Step& step) {
  say(Tone::plain, fmt::format("[{}/{}] {}: {}", ++begun_, steps_.size(), step.group, step.name));
}

void Chain::ended(const Step& step, Result& result) {
  const std::optional<Measurement> measurement = measure(step, result);
  if (result.kind == Result::Kind::skipped) ++begun_;
  say(tone_of(result), status_line(step, result));
  if (result.kind == Result::Kind::failed) {
    say(Tone::bad,
        fmt::format("  {} after {:.1f} s; all it said is in {}", result.reason, result.seconds, step.log.string()));
    for (const std::string& line : result.last_lines) say(Tone::plain, "  | " + line);
  }
  results_ += results_line(test_.model_name, step, result) + "\n";
  write(file("results_cpp", ".log"), results_);
  if (measurement) report_throughput(step, *measurement);
}

/// A disk that is full must not end a chain of hours: told once, and by the exit code.
void Chain::write(const fs::path& file, std::string_view text) {
  try {
    write_report(file, text);
    unwritten_.erase(file);
  } catch (const Error& error) {
    unwritten_.insert(file);
    if (!told_unwritten_) say(Tone::bad, fmt::format("{}; the chain goes on without its reports", error.what()));
    told_unwritten_ = true;
  }
}

void Chain::report_throughput(const Step& step, const Measurement& measurement) {
  measurements_.push_back(measurement);
  const std::string json = throughput_json(test_.model_name, measurement);
  write(file(step.group, ".json"), json);
  say(Tone::plain, trim(json));
  constexpr size_t kMinLines = 5;
  if (measurement.throughput.lines < kMinLines)
    say(Tone::notice,
        fmt::format("{}: the mean of {} only, so many lines with `ips:` were left after warming up; give it "
                    "more data or epochs for a figure to rely on",
                    step.group, measurement.throughput.lines));
}

void Chain::say(Tone tone, std::string_view line) const {
  if (options_.say) options_.say(tone, line);
}

}  // namespace trireme::tipc
