// Runs the steps of a plan one after the other and tells how each ended.
//
//   Runner runner({.folder = folder, .timeout = 10min, .output = print_bytes, .ended = print_status});
//   const std::vector<Result> results = runner.run(steps);
//   return exit_code(runner, results);
//
// A step that fails takes those with it that need it; the others are run all the same. Ctrl-C stops the running step
// and leaves the rest; the second time it is killed at once. A step's processes are gone when its result is there,
// whatever it did, but for one that the kernel itself holds: its result says so. One thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/proc/signals.h"
#include "trireme/tipc/plan.h"

namespace trireme::tipc {

struct Result {
  enum class Kind {
    passed,
    failed,
    skipped,  // on purpose, or because a step before it failed
    not_run,  // the chain was stopped before
  };
  Kind kind = Kind::not_run;
  std::string reason = {};  ///< of all but passed: "exit 7", "trainer 0 saves"
  double seconds = 0;
  std::vector<std::string> last_lines = {};  ///< of a failed step
};

struct RunOptions {
  std::filesystem::path folder{};                               ///< the chain's: outside of it nothing is removed
  std::chrono::milliseconds timeout{std::chrono::minutes(15)};  ///< for each step
  std::chrono::milliseconds grace{std::chrono::seconds(15)};    ///< between SIGTERM and SIGKILL
  std::chrono::milliseconds give_up{std::chrono::seconds(10)};  ///< after SIGKILL, on what not even that ends
  std::chrono::milliseconds impatience{100};             ///< a second signal sooner than this is part of the first
  std::function<void(std::string_view bytes)> output{};  ///< gets what steps print; logs have it anyway
  std::function<void(const Step&)> begun{};
  std::function<void(const Step&, Result&)> ended{};  ///< may find that a step failed which ended well
};

class Runner {
 public:
  explicit Runner(RunOptions options) : options_(std::move(options)) {}

  /// One result for each step. Where weights lay elsewhere than a command said, the command says so afterwards.
  std::vector<Result> run(std::vector<Step>& steps);
  /// The signal that stopped the chain, or 0.
  int stopped_by() const { return stopped_by_; }

 private:
  struct Running;
  Result try_step(Step& step, proc::SignalGate& gate);
  Result run_step(Step& step, proc::SignalGate& gate);
  void supervise(Running& running, proc::SignalGate& gate);
  void stop(Running& running, int signal);
  void mind_the_time(Running& running) const;

  const RunOptions options_;
  int stopped_by_ = 0;
  Clock::time_point stopped_at_{};
};

/// 0 when nothing failed, 1 otherwise, 128 + signal for a chain that was stopped.
int exit_code(const Runner& runner, const std::vector<Result>& results);

}  // namespace trireme::tipc
