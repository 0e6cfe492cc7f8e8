// A plan run from its first step to the reports.
//
//   Chain chain(test, mode, {.timeout = 10min, .say = print});
//   return chain.run();
//
// Writes beside the steps' logs: results_cpp.log, a line for each step as it ends; junit.xml; in the mode
// benchmark_train a JSON file for each training. On other machines than the first their names end in .node1 and so on,
// since the folder may be shared.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tipc/benchmark.h"
#include "trireme/tipc/runner.h"

namespace trireme::tipc {

enum class Tone { plain, good, bad, notice };

struct ChainOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(15)};
  std::chrono::milliseconds grace{std::chrono::seconds(15)};
  PlanOptions plan{};
  std::function<void(Tone tone, std::string_view line)> say{};
  std::function<void(std::string_view bytes)> output{};  ///< gets what steps print
};

class Chain {
 public:
  Chain(const Case& test, Mode mode, ChainOptions options);

  const std::vector<Step>& steps() const { return steps_; }
  /// Returns the exit code: 0 when nothing failed and all reports are written.
  int run();

 private:
  std::filesystem::path file(const std::string& stem, const std::string& ending) const;
  void remove_old_results() const;
  void begun(const Step& step);
  void ended(const Step& step, Result& result);
  void write(const std::filesystem::path& file, std::string_view text);
  void report_throughput(const Step& step, const Measurement& measurement);
  void say(Tone tone, std::string_view line) const;

  const Case test_;
  const Mode mode_;
  const ChainOptions options_;
  const std::filesystem::path folder_;
  std::vector<Step> steps_;
  std::string results_;                        // what results_cpp.log holds
  std::set<std::filesystem::path> unwritten_;  // reports that a full disk refused and that did not succeed since
  bool told_unwritten_ = false;
  std::vector<Measurement> measurements_;
  size_t begun_ = 0;
};

}  // namespace trireme::tipc
