// `trireme doctor`: is this machine fit for a job, and are the machines fit for each other?
#include <fmt/core.h>

#include <optional>

#include "cli/commands.h"
#include "cli/machine_check.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/manual.h"
#include "trireme/core/option_help.h"
#include "trireme/core/options.h"
#include "trireme/launch/launcher.h"
#include "trireme/launch/live_job.h"
#include "trireme/launch/options/help.h"
#include "trireme/launch/options/option_table.h"
#include "trireme/launch/options/options.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsage =
    "usage: trireme doctor                       check this machine\n"
    "       trireme doctor --ips a,b             on every machine: can they reach each other, and how fast?\n"
    "       trireme doctor --ips a,b --ssh       the same from one terminal\n"
    "       trireme doctor --job DIR|ID|PID      what the ranks of a running job wait for\n";
constexpr const char* kExamples =
    "examples\n"
    "  trireme doctor\n"
    "  trireme doctor --ips 10.0.0.1,10.0.0.2 --ssh\n"
    "  trireme doctor --job log\n";
constexpr const char* kMachines = "The options about machines are those of `trireme launch`:\n\n";

/// The options of its own; those about machines are in launch::option_table().
CommandSyntax syntax_of(std::string& job) {
  return {
      .command = "trireme doctor",
      .options = {
          {{"--job"}, "DIR|ID|PID", "a running job, by its log folder, its id or its launcher's pid", text_into(job)}}};
}

std::string markdown_of_doctor() {
  std::string job;
  std::string text = markdown_table(syntax_of(job));
  for (const launch::Option& option : launch::option_table())
    if (option.topic == launch::Topic::nodes && option.support == Support::full) text += markdown_row(option) + "\n";
  return text;
}

std::string manual_of_doctor() {
  std::string job;
  Manual page("trireme doctor", "check this machine, the way between machines, or a running job");
  page.section("SYNOPSIS");
  page.lines(kUsage);
  page.section("OPTIONS");
  for (const Option& option : syntax_of(job).options) page.option(option);
  page.lines(fmt::format("{}{}\n{}", kMachines, launch::launch_help("nodes"), kExamples));
  return page.text();
}

std::string help_of_doctor(std::string_view topic) {
  if (topic == kMarkdown) return markdown_of_doctor();
  if (topic == kManual) return manual_of_doctor();
  return fmt::format("{}\n{}{}\n{}", kUsage, kMachines, launch::launch_help("nodes"), kExamples);
}

bool names_job(const std::string& word) {
  return word == "--job" || word.starts_with("--job=");
}

int check_job(const Words& words) {
  std::string job;
  std::optional<std::string> help;
  if (words.size() > 1 || words[0] != "--job") help = parse_command_line(syntax_of(job), words).help;
  if (help) return fmt::print("{}", help_of_doctor(*help)), 0;
  if (job.empty())
    throw UsageError("doctor --job: give the log folder of a running job, its id, or its launcher's pid");
  const launch::LiveReport report = launch::live_job_report(job);
  fmt::print("{}", report.text);
  std::fflush(stdout);  // the debugger reads symbols for seconds
  if (report.culprit) fmt::print("{}", launch::stack_text(*report.culprit));
  return 0;
}

}  // namespace

int doctor(const Words& words) {
  if (words.empty()) return check_machine();
  if (names_job(words[0])) return check_job(words);
  Words all{"--check_only", "--job_id", "doctor"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--", "true"});
  const auto log = launch::plain_log();
  launch::Request request = launch::parse_launch(all, env::all(), "trireme doctor");
  if (request.help_topic) return fmt::print("{}", help_of_doctor(*request.help_topic)), 0;
  if (request.command != Words{"true"})
    throw UsageError("doctor takes no program, only options; see: trireme doctor --help");
  if (*request.nodes < 2)
    throw UsageError("doctor needs two machines or more; add --ips a,b (see: trireme doctor --help)");
  return launch::run_launch(std::move(request));
}

}  // namespace trireme::cli
