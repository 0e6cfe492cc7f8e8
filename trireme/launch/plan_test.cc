#include "trireme/launch/plan.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/launch/test_nodes.h"
#include "trireme/launch/worker_environment.h"

namespace trireme::launch {
namespace {

using Words = std::vector<std::string>;

Request request(Words command = {"./train", "--epochs", "3"}) {
  Request result;
  result.command = std::move(command);
  return result;
}

std::string usage_error(const Request& wrong, const std::vector<NodeInfo>& nodes) {
  return refusal([&] { make_plan(wrong, nodes, {}); });
}

TEST(Plan, RanksCountOverUnequalNodes) {
  const JobPlan plan =
      make_plan(request(), {example_node("10.0.0.1", 2), example_node("10.0.0.2", 1), example_node("10.0.0.3", 3)}, {});
  ASSERT_EQ(plan.world_size(), 6);
  const std::vector<std::pair<int, int>> expected = {{0, 0}, {0, 1}, {1, 0}, {2, 0}, {2, 1}, {2, 2}};
  for (int rank = 0; rank < 6; ++rank) {
    const WorkerPlan& worker = plan.workers[static_cast<size_t>(rank)];
    EXPECT_EQ(worker.rank, rank);
    EXPECT_EQ(std::pair(worker.node, worker.local_rank), expected[static_cast<size_t>(rank)]);
  }
  EXPECT_EQ(plan.workers[5].endpoint, (Endpoint{"10.0.0.3", 17002}));
}

TEST(Plan, WorkersOfANode) {
  const JobPlan plan = make_plan(request(), {example_node("10.0.0.1", 2), example_node("10.0.0.2", 3)}, {});
  const auto workers = plan.workers_of(1);
  ASSERT_EQ(workers.size(), 3u);
  EXPECT_EQ(workers[0], &plan.workers[2]);
  EXPECT_TRUE(plan.workers_of(2).empty());
}

TEST(Plan, IsPure) {
  const std::vector<NodeInfo> nodes = {example_node("10.0.0.1", 2)};
  const JobPlan a = make_plan(request(), nodes, {});
  const JobPlan b = make_plan(request(), nodes, {});
  EXPECT_EQ(a.nodes, nodes);
  EXPECT_EQ(a.workers[1].environment, b.workers[1].environment);
}

TEST(Plan, DevicesInWords) {
  const auto device = [](int processes, Words devices, size_t rank) {
    return make_plan(request(), {example_node("10.0.0.1", processes, std::move(devices))}, {}).workers[rank].device;
  };
  EXPECT_EQ(device(2, {"5", "6"}, 1), "GPU 6");
  EXPECT_EQ(device(1, {"5", "6"}, 0), "GPU 5,6");
  EXPECT_EQ(device(2, {"GPU-aa", "GPU-bb", "GPU-cc", "GPU-dd"}, 1), "GPU GPU-cc,GPU-dd");
  EXPECT_EQ(device(1, {}, 0), "CPU");
}

TEST(Plan, CommandIsUntouched) {
  const Words command = {"./train", "--name", "a b", ""};
  EXPECT_EQ(make_plan(request(command), {example_node("10.0.0.1", 1)}, {}).workers[0].command, command);
}

TEST(Plan, WrapPutsWordsInFrontForOneRank) {
  Request wrapped = request({"./train"});
  wrapped.wrap[1] = "gdb  -ex 'break main' -ex \"it's\" --opt='' --args";
  const JobPlan plan = make_plan(wrapped, {example_node("10.0.0.1", 2)}, {});
  EXPECT_EQ(plan.workers[0].command, (Words{"./train"}));
  EXPECT_EQ(plan.workers[1].command, (Words{"gdb", "-ex", "break main", "-ex", "it's", "--opt=", "--args", "./train"}));
}

TEST(Plan, AnEmptyQuotedWordStays) {
  Request wrapped = request({"./train"});
  wrapped.wrap[0] = "tool ''";
  EXPECT_EQ(make_plan(wrapped, {example_node("10.0.0.1", 1)}, {}).workers[0].command, (Words{"tool", "", "./train"}));
}

TEST(Plan, WrongWrapsAreUsageErrors) {
  Request wrong = request();
  wrong.wrap = {{4, "gdb"}};
  EXPECT_EQ(usage_error(wrong, {example_node("10.0.0.1", 2)}),
            "--wrap 4:gdb: there is no rank 4; the job has ranks 0 to 1");
  wrong.wrap = {{0, "gdb 'open"}};
  EXPECT_NE(usage_error(wrong, {example_node("10.0.0.1", 2)}).find("not closed"), std::string::npos);
  wrong.wrap = {{0, "  "}};
  EXPECT_NE(usage_error(wrong, {example_node("10.0.0.1", 2)}).find("command is missing"), std::string::npos);
}

TEST(Plan, NoProgramAndNoNodesAreUsageErrors) {
  EXPECT_NE(usage_error(request({}), {example_node("10.0.0.1", 1)}).find("no program"), std::string::npos);
  EXPECT_NE(usage_error(request(), {}).find("at least one node"), std::string::npos);
}

TEST(Plan, ANodeWithoutPortsIsADefect) {
  NodeInfo broken = example_node("10.0.0.1", 2);
  broken.ports.pop_back();
  EXPECT_THROW(make_plan(request(), {broken}, {}), std::logic_error);
}

TEST(Plan, DevicesThatDoNotDivideAreAUsageError) {
  const std::string words = usage_error(request(), {example_node("10.0.0.1", 2, {"0", "1", "2"})});
  EXPECT_NE(words.find("3 GPUs (0,1,2) cannot be shared out evenly to 2 processes"), std::string::npos) << words;
}

// --- a node as JSON

std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_json(example_node("10.0.0.1", 2, {"0", "GPU-1"}));
  const size_t at = text.find(from);
  if (at == std::string::npos) return "the test's text is wrong: " + text;
  return text.replace(at, from.size(), to);
}

std::string peer_error(const std::string& text) {
  return refusal<PeerError>([&] { node_from_json(text); });
}

TEST(NodeJson, RoundTrip) {
  const NodeInfo info = example_node("10.0.0.1", 2, {"0", "GPU-1"});
  EXPECT_EQ(node_from_json(to_json(info)), info);
  const NodeInfo v6 = example_node("fd00::1", 1);
  EXPECT_EQ(node_from_json(to_json(v6)), v6);
  const NodeInfo large = example_node("10.0.0.1", 40000);
  EXPECT_EQ(node_from_json(to_json(large)), large) << "as many as the options accept";
}

TEST(NodeJson, AnyBytesGiveValidJson) {
  NodeInfo info = example_node("10.0.0.1", 1);
  info.host = "\xff";
  EXPECT_NO_THROW(node_from_json(to_json(info)));
}

TEST(NodeJson, NonsenseIsAPeerError) {
  for (const char* text : {"", "{", "[]", "7", "null", "\"node\"", "{}"})
    EXPECT_NE(peer_error(text), "nothing was thrown") << text;
  EXPECT_NE(peer_error("{}").find("lacks \"host\""), std::string::npos);
}

TEST(NodeJson, WrongTypesAndRangesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {changed("\"processes\":2", "\"processes\":0"), "\"processes\" must be a number from 1"},
      {changed("\"processes\":2", "\"processes\":2.5"), "not 2.5"},
      {changed("\"processes\":2", "\"processes\":\"2\""), "\"processes\""},
      {changed("\"processes\":2", "\"processes\":99999999999999999999"), "\"processes\""},
      {changed("\"processes\":2", "\"processes\":3"), "2 ports for 3 processes"},
      {changed("\"cores\":8", "\"cores\":-1"), "\"cores\""},
      {changed("17001", "70000"), "\"ports\""},
      {changed("17001", "-1"), "\"ports\""},
      {changed("[17000,17001]", "17000"), "\"ports\" is not a list"},
      {changed("\"master_port\":6170", "\"master_port\":65536"), "\"master_port\""},
      {changed("\"address\":\"10.0.0.1\"", "\"address\":\"node1\""), "\"address\""},
      {changed("\"host-10.0.0.1\"", "7"), "\"host\" is not a text"},
      {changed("host-10", "host\\n10"), "\"host\" is too long or holds control characters"},
      {changed("host-10", "host\\u000010"), "control characters"},
      {changed("GPU-1", "\\u001b[31m"), "\"devices\""},
      {changed("\"/job/log\"", "null"), "\"log_dir\""},
      {changed("\"eth0\"", "\"" + std::string(5000, 'x') + "\""), "\"interface\""},
  };
  for (const auto& [text, words] : cases)
    EXPECT_NE(peer_error(text).find(words), std::string::npos) << peer_error(text);
}

}  // namespace
}  // namespace trireme::launch
