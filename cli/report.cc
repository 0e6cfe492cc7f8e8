// `trireme report`: the dashboard of a job that has ended, as one file.
#include <fmt/core.h>

#include "cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/option_help.h"
#include "trireme/launch/live/job_report.h"

namespace trireme::cli {
namespace {

struct ReportOptions {
  std::string output;
};

CommandSyntax syntax_of(ReportOptions& options) {
  return {.command = "trireme report",
          .usage = "[LOGDIR] [options]",
          .about =
              "Writes one HTML file with the curves, the last time line, the ranks, the collectives and the logs of a "
              "job, made\nof what is in its log folder (default: log). The file needs no server and no network.\n",
          .notes =
              "examples\n"
              "  trireme report                               writes log/report.html\n"
              "  trireme report /jobs/mnist/log -o mnist.html\n",
          .operands = Operands::anywhere,
          .options = {{{"--output", "-o"},
                       "FILE",
                       "where to write it (default: LOGDIR/report.html)",
                       into(options.output, [](const Given& given) { return given.text; })}}};
}

}  // namespace

int report(const Words& words) {
  ReportOptions options;
  const CommandLine line = parse_command_line(syntax_of(options), words);
  if (line.help) return fmt::print("{}", help_for(syntax_of(options), *line.help)), 0;
  if (line.operands.size() > 1) throw UsageError("trireme report: name one log folder, not {}", line.operands.size());
  const std::filesystem::path folder = line.operands.empty() ? "log" : line.operands[0];
  const std::string html = launch::job_report(folder);
  const auto file = options.output.empty() ? folder / "report.html" : std::filesystem::path(options.output);
  write_file_atomically(file, html, {.durable = false});
  return fmt::print("wrote {}\n", file.string()), 0;
}

}  // namespace trireme::cli
