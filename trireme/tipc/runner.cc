#include "trireme/tipc/runner.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/proc/lines.h"
#include "trireme/proc/log_file.h"
#include "trireme/proc/process_set.h"
#include "trireme/tipc/outdated.h"

namespace trireme::tipc {

/// A step's process, and what is known of it so far.
struct Runner::Running {
  Running(const Step& step, Deadline end) : log(step.log, {.max_bytes = 0, .overwrite = true}), deadline(end) {}

  proc::ProcessSet processes;
  int id = -1;
  proc::LogFile log;
  proc::Tail tail{10};
  proc::ExitStatus status;
  int exec_error = 0;
  Deadline deadline;                  // then SIGTERM
  Deadline kill = Deadline::never();  // then SIGKILL
  Deadline lost = Deadline::never();  // then it is left behind
  bool left_behind = false;
  std::string stopped;  // why, if it was
};

namespace {

namespace fs = std::filesystem;

std::string own_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

/// With this program's folder first, so that `trireme` in a case is this one.
std::string search_path() {
  return own_folder() + ":" + env::get("PATH").value_or("/usr/bin:/bin");
}

std::vector<std::string> environment_of(const Step& step) {
  std::vector<std::string> environment;
  const auto changed = [&](const std::string& name) {
    return name == "PATH" || std::any_of(step.environment.begin(), step.environment.end(),
                                         [&](const auto& variable) { return variable.first == name; });
  };
  for (const auto& [name, value] : env::all())
    if (!changed(name)) environment.push_back(name + "=" + value);
  for (const auto& [name, value] : step.environment) environment.push_back(name + "=" + value);
  environment.push_back("PATH=" + search_path());
  return environment;
}

/// The file to execute; the word itself when there is none, so that the system says what is wrong with it.
std::string program_file(const std::string& word) {
  if (word.find('/') != std::string::npos) return word;
  for (const std::string& folder : split(search_path(), ':')) {
    const std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, word);
    if (::access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file)) return file;
  }
  return word;
}

/// All that fit: FOLDER/NAME, else every FOLDER/*/NAME.
std::vector<fs::path> find_weights(const Weights& weights) {
  std::error_code failed, ignored;
  if (fs::exists(weights.path(), ignored)) return {weights.path()};
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(weights.folder, failed), end; !failed && entry != end; entry.increment(failed))
    if (fs::exists(entry->path() / weights.name, ignored)) found.push_back(entry->path() / weights.name);
  return found;
}

/// In the command, where it is not doubtful.
void put_weights(Step& step) {
  if (!step.weights || step.kind == StepKind::train) return;
  const std::vector<fs::path> found = find_weights(*step.weights);
  const std::string named = step.weights->path();
  for (std::string& word : step.command)
    if (found.size() == 1 && word.ends_with("=" + named))
      word.replace(word.size() - named.size(), std::string::npos, found[0].string());
}

void make_room(const Step& step, const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(step.log.parent_path(), failed);
  if (failed) throw SystemError(failed.value(), "cannot make the folder {}", step.log.parent_path().string());
  std::vector<fs::path> outdated = step.outdated;
  if (step.weights && step.kind == StepKind::train) outdated = find_weights(*step.weights);
  for (const fs::path& path : outdated) remove_inside(folder, path);
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

/// Empty for success.
std::string reason_of(const proc::ExitStatus& status, int exec_error, const std::string& stopped,
                      const std::string& program) {
  if (!stopped.empty()) return stopped;
  if (exec_error != 0) return fmt::format("cannot start {}: {}", program, errno_text(exec_error));
  return status.success() ? "" : proc::to_string(status);
}

}  // namespace

std::vector<Result> Runner::run(std::vector<Step>& steps) {
  proc::SignalGate gate;
  std::vector<Result> results;
  for (Step& step : steps) {
    const bool blocked = step.after && results[*step.after].kind != Result::Kind::passed;
    Result result;
    if (stopped_by_ != 0)
      result = {.kind = Result::Kind::not_run, .reason = "the chain was stopped"};
    else if (!step.skip.empty())
      result = {.kind = Result::Kind::skipped, .reason = step.skip};
    else if (blocked)
      result = {.kind = Result::Kind::skipped, .reason = fmt::format("no {} before it", steps[*step.after].name)};
    else
      result = try_step(step, gate);
    if (options_.ended) options_.ended(step, result);
    results.push_back(std::move(result));
  }
  return results;
}

/// A full disk fails the step, not the chain's report.
Result Runner::try_step(Step& step, proc::SignalGate& gate) {
  try {
    return run_step(step, gate);
  } catch (const Error& error) {
    return {.kind = Result::Kind::failed, .reason = error.what()};
  }
}

Result Runner::run_step(Step& step, proc::SignalGate& gate) {
  make_room(step, options_.folder);
  put_weights(step);
  if (options_.begun) options_.begun(step);
  const Clock::time_point start = Clock::now();
  Running running(step, Deadline::in(options_.timeout));
  running.log.write(fmt::format("$ {}\n", shown(step)));
  if (running.log.error()) throw Error(trireme::exit_code::kSystem, *running.log.error());
  running.id = running.processes.start(
      {.command = step.command, .program = program_file(step.command[0]), .environment = environment_of(step)});
  supervise(running, gate);
  Result result{.kind = Result::Kind::passed};
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.reason = reason_of(running.status, running.exec_error, running.stopped, step.command[0]);
  if (result.reason.empty()) return result;
  running.log.write(result.reason + "\n");
  result.kind = Result::Kind::failed;
  result.last_lines = running.tail.lines();
  return result;
}

void Runner::supervise(Running& running, proc::SignalGate& gate) {
  while (running.processes.running() > 0 && !running.left_behind) {
    const Deadline next = earlier(earlier(running.deadline, running.kill), running.lost);
    for (const proc::Event& event : running.processes.wait(next, gate.open())) {
      if (event.kind == proc::Event::Kind::output) {
        running.log.write(event.bytes);
        running.tail.add(event.bytes);
        if (options_.output) options_.output(event.bytes);
      } else if (event.kind == proc::Event::Kind::exited) {
        running.status = event.status;
        running.exec_error = event.exec_error;
      }
    }
    while (const auto signal = gate.take()) stop(running, *signal);
    mind_the_time(running);
  }
}

/// timeout(1) and terminals tell a process and then its group: that is one wish, and leaves the grace alone.
void Runner::stop(Running& running, int signal) {
  const bool again = stopped_by_ != 0;
  if (again && Clock::now() - stopped_at_ < options_.impatience) return;
  if (!again) stopped_at_ = Clock::now();
  stopped_by_ = signal;
  running.stopped = fmt::format("stopped by signal {}", signal);
  running.deadline = Deadline::never();
  if (!running.lost.is_never()) return;  // killed already
  running.kill = again ? Deadline::in({}) : Deadline::in(options_.grace);
  running.processes.signal_all(SIGTERM);
}

void Runner::mind_the_time(Running& running) const {
  if (running.deadline.passed()) {
    running.deadline = Deadline::never();
    running.kill = Deadline::in(options_.grace);
    running.stopped =
        fmt::format("stopped after {}, the time a step may take (--timeout)", seconds_text(options_.timeout));
    running.processes.signal_all(SIGTERM);
  }
  if (running.kill.passed()) {
    running.kill = Deadline::never();
    running.lost = Deadline::in(options_.give_up);
    running.processes.signal_all(SIGKILL);
  }
  if (running.lost.passed()) {
    running.left_behind = true;
    running.stopped += fmt::format("; still there {} after SIGKILL and left behind (state D in ps? look at its disk)",
                                   seconds_text(options_.give_up));
  }
}

int exit_code(const Runner& runner, const std::vector<Result>& results) {
  constexpr int kSignal = 128;
  if (runner.stopped_by() != 0) return kSignal + runner.stopped_by();
  return std::any_of(results.begin(), results.end(), [](const Result& r) { return r.kind == Result::Kind::failed; });
}

}  // namespace trireme::tipc
