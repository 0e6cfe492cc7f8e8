// Runs a function in several processes from inside a program: no launcher on the command line, no permission to set
// CUDA_VISIBLE_DEVICES needed.
//
//   void train(float rate) { auto world = init_parallel_env(); … }
//
//   int main() {
//     spawn([] { train(0.1f); });
//     spawn(train, std::tuple{0.1f});
//     spawn(train, std::tuple{0.1f}, {.nprocs = 2});
//     spawn(train, std::tuple{0.1f}, {.nprocs = 2, .gpus = "4,5"});
//   }
//
// The four uses: a function alone (one process for each visible GPU, else for each core), with arguments, on the first
// two visible devices, on these two.
//
// A process of spawn is this program executed once more with the same arguments: it runs main() up to the same call,
// runs the function there and ends; it never returns from spawn. So main() must come the same way to the call (no
// random branches), and what it computes before, every process computes again. A process that ends before the call has
// failed, with whatever exit code. What main() prints before the call is shown once, by the parent. Standard input that
// is a file is read by each process from where this one began; of a pipe or a terminal they see the end. Several spawns
// in one program work, one after the other; spawn inside a spawned function does not.
//
// Output of the processes appears on the parent's console, each line after its rank; there are no log files.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/core/cxx20.h"
#include "trireme/core/error.h"

namespace trireme {

struct SpawnOptions {
  int nprocs = -1;        ///< -1: all visible GPUs, or all cores where there is none
  std::string gpus = {};  ///< absolute ids such as "4,5"; must be visible, and as many as nprocs if that is given
  bool join = true;       ///< false: return at once, with the context to join later
  std::chrono::milliseconds grace{10'000};  ///< between SIGTERM and SIGKILL when a process must be stopped
};

/// A process failed: what it said (the exception's text) or how it died. The other processes have been stopped.
class SpawnError : public Error {
 public:
  SpawnError(int rank, int exit_code, const std::string& message) : Error(exit_code, message), rank_(rank) {}
  /// Of the process that failed first.
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// The running processes. Copies share them. When the last copy goes, processes that still run are stopped. What join()
/// has not told by then, that they still ran or how they failed, is logged as an error.
/// Thread rule: one thread at a time.
class SpawnContext {
 public:
  /// Waits for all processes: true when all have succeeded, false when the time is over first. Throws SpawnError.
  bool join(std::optional<std::chrono::steady_clock::duration> timeout = std::nullopt);
  /// Process ids in rank order; 0 for one that is gone.
  std::vector<int> pids() const;

  class Impl;
  explicit SpawnContext(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

/// Throws UsageError for devices or numbers that cannot be, SpawnError when a process failed (with join).
SpawnContext spawn(const std::function<void()>& function, const SpawnOptions& options = {});

template <typename Function, typename... Args>
SpawnContext spawn(Function function, std::tuple<Args...> arguments, const SpawnOptions& options = {}) {
  return spawn(std::function<void()>([&] { std::apply(function, arguments); }), options);
}

}  // namespace trireme
