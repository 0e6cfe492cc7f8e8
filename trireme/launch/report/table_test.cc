#include "trireme/launch/report/table.h"

#include <gtest/gtest.h>

#include "trireme/core/text.h"
#include "trireme/launch/test_nodes.h"

namespace trireme::launch {
namespace {

NodeInfo node(const std::string& address, std::vector<std::string> devices, int processes = 2) {
  NodeInfo info = example_node(address, processes, std::move(devices));
  info.cores = 4;
  info.log_dir = "/log";
  return info;
}

JobPlan plan_of(const std::vector<NodeInfo>& nodes) {
  Request request;
  request.command = {"./train", "--name", "two words", "it's"};
  return make_plan(request, nodes, {});
}

// Spec 1, to the character: two machines, two cards each, first machine.
TEST(Table, IsTheSpecifications) {
  const JobPlan plan = plan_of({node("192.168.0.1", {"0", "1"}), node("192.168.0.2", {"0", "1"})});
  EXPECT_EQ(environment_table(plan.workers[0], 2),
            R"(Local start 2 processes. First process distributed environment info (Only For Debug):
    +=======================================================================================+
    |                        Distributed Envs                      Value                    |
    +---------------------------------------------------------------------------------------+
    |                 PADDLE_CURRENT_ENDPOINT                192.168.0.1:17000              |
    |                     PADDLE_TRAINERS_NUM                        4                      |
    |                PADDLE_TRAINER_ENDPOINTS  ... 168.0.1:17001,192.168.0.2:17000,192.1... |
    |                     FLAGS_selected_gpus                        0                      |
    |                       PADDLE_TRAINER_ID                        0                      |
    +=======================================================================================+
)");
}

TEST(Table, OnCpuTheBackendStandsInPlaceOfTheGpu) {
  const std::string table = environment_table(plan_of({node("10.0.0.1", {})}).workers[0], 2);
  EXPECT_EQ(table.find("FLAGS_selected_gpus"), std::string::npos);
  EXPECT_NE(table.find("    |                         TRIREME_BACKEND                       shm                     |"),
            std::string::npos)
      << table;
}

std::string shown_backend(const std::vector<NodeInfo>& nodes, const std::string& wanted = "") {
  Request request;
  request.command = {"./train"};
  const std::string table =
      environment_table(make_plan(request, nodes, {.inherited = {{"TRIREME_BACKEND", wanted}}}).workers[0], 1);
  const size_t key = table.find("TRIREME_BACKEND ");
  const std::string row = table.substr(key, table.find('\n', key) - key);
  return split(std::string(trim(row.substr(15, row.size() - 16))), ' ').front();
}

NodeInfo on_machine(const std::string& machine, NodeInfo node) {
  node.machine = machine;
  return node;
}

TEST(Table, TheBackendIsTheOneThatWillRun) {
  const NodeInfo one = node("10.0.0.1", {}, 1), first = node("10.0.0.1", {}), second = node("10.0.0.2", {});
  EXPECT_EQ(shown_backend({first}), "shm");
  EXPECT_EQ(shown_backend({one}), "local");
  EXPECT_EQ(shown_backend({first, second}), "hierarchical");
  EXPECT_EQ(shown_backend({on_machine("a", first), on_machine("b", second)}), "hierarchical");
  EXPECT_EQ(shown_backend({on_machine("a", first), on_machine("a", second)}), "shm") << "two nodes on one machine";
  EXPECT_EQ(shown_backend({on_machine("a", one), on_machine("b", second), on_machine("a", first)}), "hierarchical");
  EXPECT_EQ(shown_backend({first}, "gloo"), "gloo");
  EXPECT_EQ(shown_backend({first}, "their-own"), "their-own") << "the program may be no user of Trireme's";
}

TEST(Table, EveryLineHasTheSameWidthWhateverTheLength) {
  for (int processes = 1; processes < 40; ++processes) {
    const std::string table = environment_table(plan_of({node("10.0.0.1", {}, processes)}).workers[0], processes);
    const auto lines = split(table, '\n');
    for (size_t i = 1; i + 1 < lines.size(); ++i) EXPECT_EQ(lines[i].size(), 93u) << lines[i];
  }
}

TEST(Table, ValuesOfFortyFourCharactersFitAndOfFortyFiveDoNot) {
  WorkerPlan worker;
  worker.trainer_endpoints = std::make_shared<const std::string>(std::string(44, 'x'));
  EXPECT_NE(environment_table(worker, 1).find(std::string(44, 'x')), std::string::npos);
  worker.trainer_endpoints = std::make_shared<const std::string>(std::string(45, 'x'));
  EXPECT_NE(environment_table(worker, 1).find("  ... " + std::string(37, 'x') + "... |"), std::string::npos);
}

TEST(DryRun, FirstRankInFull) {
  const std::string text = dry_run_text(plan_of({node("10.0.0.1", {"4", "5"})}));
  EXPECT_TRUE(
      text.starts_with("2 workers on 1 node\n\n"
                       "rank 0: node 0 (host-10.0.0.1), local rank 0, GPU 4, endpoint 10.0.0.1:17000\n"
                       "  command: ./train --name 'two words' 'it'\\''s'\n"
                       "  environment:\n"
                       "    PADDLE_MASTER=10.0.0.1:6170\n"))
      << text;
}

TEST(DryRun, OtherRanksShowWhatDiffers) {
  const std::string text = dry_run_text(plan_of({node("10.0.0.1", {"4", "5"})}));
  const std::string second = text.substr(text.find("rank 1:"));
  EXPECT_NE(second.find("local rank 1, GPU 5, endpoint 10.0.0.1:17001"), std::string::npos) << second;
  EXPECT_NE(second.find("differs from rank 0:"), std::string::npos);
  EXPECT_NE(second.find("    RANK=1\n"), std::string::npos);
  EXPECT_EQ(second.find("WORLD_SIZE"), std::string::npos) << second;
}

TEST(DryRun, ShowsWhatAnotherRankLacks) {
  const std::string text = dry_run_text(plan_of({node("10.0.0.1", {"4"}, 1), node("10.0.0.2", {}, 1)}));
  EXPECT_NE(text.find("    FLAGS_selected_gpus is not set\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    PADDLE_DISTRI_BACKEND=gloo\n"), std::string::npos) << text;
}

TEST(DryRun, HasNoControlCharacters) {
  Request request;
  request.command = {"./train", "\x1b[2J"};
  request.environment = {{"X", "a\nb"}};
  const std::string text = dry_run_text(make_plan(request, {node("10.0.0.1", {}, 1)}, {}));
  EXPECT_NE(text.find("'\\x1b[2J'"), std::string::npos);
  EXPECT_NE(text.find("X=a\\x0ab"), std::string::npos);
}

}  // namespace
}  // namespace trireme::launch
