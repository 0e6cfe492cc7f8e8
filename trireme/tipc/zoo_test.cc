// The cases that come with Trireme: each has a plan in every mode, on every kind of device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "trireme/core/text.h"
#include "trireme/tipc/plan.h"

namespace trireme::tipc {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<fs::path> files() {
  std::vector<fs::path> all;
  for (const auto& entry : fs::recursive_directory_iterator(TRIREME_TIPC_CASES))
    if (entry.path().extension() == ".txt") all.push_back(entry.path());
  return all;
}

Case read_case(const fs::path& file, const std::string& gpu_list) {
  ConfigText text = read_config(file.string());
  if (!gpu_list.empty()) set_value(text, "gpu_list=" + gpu_list);
  return make_case(text);
}

/// Every step writes into the folder of its combination, and finds there what the one before it left.
std::string expected_in(const Case& test, const Step& step, const std::string& folder) {
  if (step.kind == StepKind::infer) return " --score-digits=6 ";
  if (step.kind == StepKind::eval) return "-o Global.pretrained_model=" + folder + "/" + test.train_model_name + " ";
  if (step.kind == StepKind::export_model) return "-o Global.save_inference_dir=" + folder + "/inference";
  return "-o Global.output_dir=" + folder;
}

void check_step(const Case& test, const Step& step) {
  const std::string folder = step.log.parent_path().string();
  EXPECT_EQ(step.log.parent_path().filename(), step.group);
  EXPECT_THAT(shown(step), HasSubstr(folder)) << step.name;
  EXPECT_THAT(shown(step), HasSubstr(expected_in(test, step, folder))) << step.name;
}

size_t check_plan(const Case& test, Mode mode) {
  std::set<fs::path> logs;
  const std::vector<Step> steps = make_plan(test, mode);
  for (const Step& step : steps) {
    check_step(test, step);
    EXPECT_TRUE(logs.insert(step.log).second) << step.log << " is written twice";
  }
  return steps.size();
}

TEST(Zoo, EveryCaseHasAPlanInEveryMode) {
  ASSERT_GE(files().size(), 2u * 35);
  for (const fs::path& file : files())
    for (const char* gpu_list : {"", "0", "cpu:2|10.0.0.1,10.0.0.2;0,1"}) {
      SCOPED_TRACE(file.string() + " on " + gpu_list);
      const Case test = read_case(file, gpu_list);
      for (const std::string& name : mode_names()) {
        const Mode mode = parse_mode(name, "");
        if (mode == Mode::benchmark_train && !test.benchmark) continue;
        EXPECT_GT(check_plan(test, mode), 0u) << name;
      }
    }
}

}  // namespace
}  // namespace trireme::tipc
