// `trireme top`: what the ranks of a running job do, again and again.
#include "trireme/launch/top.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cli/commands.h"
#include "trireme/core/backoff.h"
#include "trireme/core/clock.h"
#include "trireme/core/error.h"
#include "trireme/core/option_help.h"
#include "trireme/launch/live_job.h"
#include "trireme/launch/top_screen.h"

namespace trireme::cli {
namespace {

constexpr Millis kMinInterval{100};  // of --interval: a shorter one shows nothing new
constexpr Millis kNextState{3'000};  // a launcher writes once a second

struct TopOptions {
  std::string job = "log";
  std::chrono::milliseconds interval{1'000};
  bool once = false;
};

CommandSyntax syntax_of(TopOptions& options) {
  return {.command = "trireme top",
          .usage = "[LOGDIR|ID|PID] [options]",
          .about =
              "Shows what the ranks of a running job do, on all its machines: step, samples/s, loss, the shares\n"
              "of compute, communication and data, CPU, memory, and the collective in which one waits. The job\n"
              "is named by its log folder on node 0 (default: log), its id or its launcher's pid there. `q` or\n"
              "Ctrl-C ends it.\n",
          .notes =
              "Without a terminal the table is printed once. Where not all ranks fit, the worst are shown.\n"
              "`trireme doctor --job` says more about a job that hangs.\n\n"
              "examples\n"
              "  trireme top                          the job whose log folder is ./log\n"
              "  trireme top /jobs/mnist/log          another job\n"
              "  trireme top --once | head -n 2       one look, for a script\n",
          .operands = Operands::anywhere,
          .options = {
              {{"--interval"}, "TIME", "time between two looks (default: 1s)", into(options.interval, duration_value)},
              {{"--once"}, "", "print the whole table once", into(options.once, bool_value), Takes::nothing}}};
}

int64_t wall_ms() {
  return std::chrono::duration_cast<Millis>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Waits for the next state that the launcher writes, so that the table is current. When the job has ended, or the
// launcher is stopped, returns the last state.
launch::JobView next_state(const std::filesystem::path& folder) {
  const Deadline deadline = Deadline::in(kNextState);
  launch::JobView job = launch::live_job_view(folder);
  const int64_t before = job.now_ms;
  const auto waits = [&] { return job.state == "running" && job.now_ms == before && !deadline.passed(); };
  for (Backoff backoff(Millis{10}, Millis{50}); waits(); job = launch::live_job_view(folder)) backoff.pause(deadline);
  return job;
}

std::string ended_text(const launch::JobView& job) {
  if (job.state == "gone") return "the job has ended: its launcher was killed\n";
  return fmt::format("the job has ended: {}, exit code {}\n", job.state, job.exit_code);
}

int show_once(const launch::JobView& job) {
  for (const std::string& line : launch::top_lines(job, {}, wall_ms())) fmt::print("{}\n", line);
  if (job.state != "running") fmt::print("\n{}", ended_text(job));
  return 0;
}

int show_until_the_end(const std::filesystem::path& folder, Millis interval) {
  launch::JobView job = launch::live_job_view(folder);
  {
    launch::TopScreen screen;
    while (job.state == "running") {
      screen.draw(launch::top_lines(job, screen.size(), wall_ms()));
      if (!screen.wait(Deadline::in(std::max(interval, kMinInterval)))) return 0;
      job = launch::live_job_view(folder);
    }
  }
  return fmt::print("{}", ended_text(job)), 0;
}

}  // namespace

int top(const Words& words) {
  TopOptions options;
  const CommandLine line = parse_command_line(syntax_of(options), words);
  if (line.help) return fmt::print("{}", help_for(syntax_of(options), *line.help)), 0;
  if (line.operands.size() > 1) throw UsageError("trireme top: name one job, not {}", line.operands.size());
  if (!line.operands.empty()) options.job = line.operands[0];
  const std::filesystem::path folder = launch::live_job_folder(options.job);  // once: the pid is gone after the job
  if (options.once || !::isatty(STDOUT_FILENO)) return show_once(next_state(folder));
  return show_until_the_end(folder, options.interval);
}

}  // namespace trireme::cli
