#include "trireme/tipc/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

using Kind = Result::Kind;

const char* word_for(Kind kind) {
  constexpr const char* kWords[] = {"passed", "failed", "skipped", "not run"};
  return kWords[static_cast<size_t>(kind)];
}

/// "Run successfully with command" and so on.
std::string opening(const Result& result) {
  switch (result.kind) {
    case Kind::passed:
      return "Run successfully with command";
    case Kind::failed:
      return "Run failed with command";
    case Kind::skipped:
      return fmt::format("Run skipped ({}) with command", result.reason);
    case Kind::not_run:
      break;
  }
  return fmt::format("Not run ({}): command", result.reason);
}

std::string outcome(const Result& result) {
  if (result.kind == Kind::passed) return word_for(result.kind);
  return fmt::format("{} ({})", word_for(result.kind), result.reason);
}

size_t count(const std::vector<Result>& results, Kind kind) {
  return static_cast<size_t>(
      std::count_if(results.begin(), results.end(), [kind](const Result& result) { return result.kind == kind; }));
}

std::string xml(std::string_view text) {
  static const std::map<char, std::string_view> kEntities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string escaped;
  for (const char c : printable(text)) {
    const auto entity = kEntities.find(c);
    escaped += entity == kEntities.end() ? std::string_view(&c, 1) : entity->second;
  }
  return escaped;
}

std::string test_case(const Step& step, const Result& result) {
  std::string text = fmt::format("  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\">\n", xml(step.group),
                                 xml(step.name), result.seconds);
  std::string lines;
  for (const std::string& line : result.last_lines) lines += xml(line) + "\n";
  if (result.kind == Kind::failed)
    text += fmt::format("    <failure message=\"{}\">{}\n{}</failure>\n", xml(result.reason), xml(shown(step)), lines);
  else if (result.kind != Kind::passed)
    text += fmt::format("    <skipped message=\"{}\"/>\n", xml(result.reason));
  return text + fmt::format("    <system-out>{}</system-out>\n  </testcase>\n", xml(step.log.string()));
}

}  // namespace

std::string status_line(const Step& step, const Result& result) {
  return fmt::format("{} - {}!", opening(result), shown(step));
}

std::string results_line(const std::string& model_name, const Step& step, const Result& result) {
  return fmt::format("{} - {} - {} - {}!", opening(result), model_name, shown(step), step.log.string());
}

std::string summary(const std::vector<Step>& steps, const std::vector<Result>& results) {
  size_t name = 4;
  for (const Step& step : steps) name = std::max(name, step.name.size());
  std::string text, group;
  for (size_t i = 0; i < results.size(); ++i) {
    if (steps[i].group != group) text += (group = steps[i].group) + "\n";
    text += fmt::format("  {:<{}}  {:>8.1f} s  {}\n", steps[i].name, name, results[i].seconds, outcome(results[i]));
  }
  text += fmt::format("{} steps: {} passed, {} failed, {} skipped", results.size(), count(results, Kind::passed),
                      count(results, Kind::failed), count(results, Kind::skipped));
  const size_t left = count(results, Kind::not_run);
  return text + (left == 0 ? "\n" : fmt::format(", {} not run\n", left));
}

std::string junit_xml(const std::string& suite, const std::vector<Step>& steps, const std::vector<Result>& results) {
  double seconds = 0;
  for (const Result& result : results) seconds += result.seconds;
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3f}\">\n",
      xml(suite), results.size(), count(results, Kind::failed),
      count(results, Kind::skipped) + count(results, Kind::not_run), seconds);
  for (size_t i = 0; i < results.size(); ++i) text += test_case(steps[i], results[i]);
  return text + "</testsuite>\n";
}

}  // namespace trireme::tipc
