// What will be run, in order: a function from a case to a list of steps, without a look at the machine.
//
//   for (const Step& step : make_plan(test, Mode::lite_train_lite_infer, {})) fmt::print("{}\n", shown(step));
//
// For each device x precision x trainer: train, eval, export, then inference over its alternatives.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/tipc/case.h"

namespace trireme::tipc {

enum class StepKind { train, eval, export_model, infer };
const char* to_string(StepKind kind);

/// What a training of benchmark_train measures.
struct Measured {
  std::string batch_size;
  std::string fp_item;
  int nodes = 1;
  int devices = 1;             ///< on all nodes together
  std::string device = "CPU";  ///< or "GPU": only the same kind is compared
};

/// What a training leaves: FOLDER/NAME, or FOLDER/*/NAME of a program that makes a folder for the model.
struct Weights {
  std::filesystem::path folder;
  std::string name;
  std::string path() const { return (folder / name).string(); }
};

struct Step {
  StepKind kind;
  std::string group;  ///< the combination, and the name of its folder: norm_train_gpus_0,1_autocast_null_nodes_1
                      ///< (with _2 and so on where only the hosts differ)
  std::string name;   ///< within the group: "train", "infer cpu_threads_2_batchsize_1"
  Words command;
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::filesystem::path log = {};
  int node = 0;                                      ///< this machine's place in the list of its combination
  std::optional<size_t> after = {};                  ///< the step whose result it needs
  std::string skip = {};                             ///< why it is not run; empty: it is
  std::optional<Weights> weights = {};               ///< a training's: it makes them; else the command names them
  std::vector<std::filesystem::path> outdated = {};  ///< what an earlier run left and this step makes again
  std::optional<Measured> measured = {};
};

/// The command as one would type it.
std::string shown(const Step& step);

struct PlanOptions {
  std::string output = "./test_tipc/output";
  std::vector<int> nodes{};  ///< number of this machine in each placement, by its place in the list; empty: the first
};

/// Whether a plan may call an inference's log so, on that machine.
bool is_infer_log(std::string_view file_name, int node);

/// Where logs, results_cpp.log and junit.xml go.
std::filesystem::path output_folder(const Case& test, Mode mode, const PlanOptions& options = {});

/// UsageError when there is nothing to run.
std::vector<Step> make_plan(const Case& test, Mode mode, const PlanOptions& options = {});

}  // namespace trireme::tipc
