#include "trireme/launch/nodes/preflight.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/nodes/node_check.h"

namespace trireme::launch {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeReport, problems, shared_logs)

namespace {

constexpr auto kCheckTime = std::chrono::seconds(60);
constexpr auto kReadTime = std::chrono::seconds(2);
constexpr double kSkewWarning = 1000;  // ms

const NodeInfo& info_of(const PreflightContext& context, int node) {
  return context.nodes.at(static_cast<size_t>(node)).info;
}

void warn_of_differences(const PreflightContext& context) {
  for (int i = 1; i < static_cast<int>(context.nodes.size()); ++i)
    if (context.self == 0 || i == context.self)
      for (const std::string& line : differences(context.nodes[0], context.nodes[static_cast<size_t>(i)]))
        log_warning("nodes differ: {}", line);
}

void tell_clock(const PreflightContext& context, const Reach& reach) {
  const NodeInfo& other = info_of(context, reach.node);
  log_debug("node {} ({}): round trip {:.3f} ms, clock {:+.1f} ms", reach.node, other.address, reach.round_trip_ms,
            reach.clock_skew_ms);
  if (std::abs(reach.clock_skew_ms) > kSkewWarning)
    log_warning(
        "the clock of node {} ({}) differs from this one's by {:+.1f} s; times in the logs will not match (see: "
        "timedatectl)",
        reach.node, other.host, reach.clock_skew_ms / 1000);
}

// What this node could not reach, in words.
std::vector<std::string> problems_here(const PreflightContext& context) {
  std::vector<std::string> problems;
  const int nodes = static_cast<int>(context.nodes.size());
  for (const std::string& line : contradictions(context.nodes[0], context.nodes[static_cast<size_t>(context.self)]))
    problems.push_back(line);
  for (int i = 0; i < nodes; ++i) {
    if (!should_try(context.self, i, nodes)) continue;
    const Reach reach = reach_node(i, context.nodes[static_cast<size_t>(i)].probe, context.token, ReachTest::ping);
    if (reach.error.empty())
      tell_clock(context, reach);
    else
      problems.push_back(fmt::format("node {} ({}) cannot reach node {} ({}, {}): {}", context.self,
                                     info_of(context, context.self).host, i, info_of(context, i).host,
                                     info_of(context, i).address, reach.error));
  }
  return problems;
}

std::filesystem::path mark_of(const Introduction& node, const std::string& folder) {
  return std::filesystem::path(folder) / (".trireme-" + to_hex(sha256(node.name)).substr(0, 16));
}

// Whether another node has left its mark in this node's folder.
bool shares_folder(const PreflightContext& context) {
  const std::string& folder = info_of(context, context.self).log_dir;
  for (int i = 0; i < static_cast<int>(context.nodes.size()); ++i) {
    std::error_code ignored;
    const Introduction& other = context.nodes[static_cast<size_t>(i)];
    if (i != context.self && std::filesystem::exists(mark_of(other, folder), ignored)) return true;
  }
  return false;
}

std::string check_key(int node) {
  return fmt::format("check/{}", node);
}

void report(const PreflightContext& context) {
  const NodeReport check{.problems = problems_here(context), .shared_logs = shares_folder(context)};
  context.store.set(check_key(context.self), to_json(check));
}

bool has_left(const PreflightContext& context, int node) {
  const auto& name = context.nodes[static_cast<size_t>(node)].name;
  bool left = false;
  for (const std::string& gone : context.lost->take()) {
    if (gone == name)
      left = true;
    else
      context.lost->add(gone);  // another node's loss: found in its turn
  }
  return left;
}

// A node's report, or one in its name that says why there is none.
NodeReport report_of(const PreflightContext& context, int node, Deadline deadline) {
  const auto failed = [&](const std::string& why) {
    const NodeInfo& info = info_of(context, node);
    return NodeReport{.problems = {fmt::format("node {} ({}, {}) {}", node, info.host, info.address, why)}};
  };
  for (;;) {
    const Deadline slice = earlier(deadline, Deadline::in(std::chrono::milliseconds(500)));
    std::string text;
    try {
      text = context.store.get(check_key(node), slice);
    } catch (const PeerError&) {
      if (has_left(context, node))
        return failed("left while the nodes were checking each other; look at its launcher's output");
      if (deadline.passed())
        return failed("did not report within a minute whether it reaches the others; is it overloaded?");
      continue;
    }
    try {
      return node_report_from_json(text);
    } catch (const PeerError& error) {
      return failed(fmt::format("says something else: {}", error.what()));
    }
  }
}

void decide(const PreflightContext& context, Deadline deadline) {
  NodeReport verdict;
  for (int i = 0; i < static_cast<int>(context.nodes.size()); ++i) {
    const NodeReport check = report_of(context, i, deadline);
    verdict.shared_logs |= check.shared_logs;
    verdict.problems.insert(verdict.problems.end(), check.problems.begin(), check.problems.end());
  }
  context.store.set("go", to_json(verdict));
}

// Node 0 hosts the store and must not end before the others have read why there is no job.
void await_readers(const PreflightContext& context) try {
  if (context.store.add("go/read", 1) == static_cast<int64_t>(context.nodes.size()))
    context.store.set("go/all_read", "");
  if (context.self == 0) context.store.get("go/all_read", Deadline::in(kReadTime));
} catch (const PeerError&) {
  // A node that is gone cannot read; the deadline was for it.
}

}  // namespace

std::string to_json(const NodeReport& report) {
  return json(report).dump(-1, ' ', false, json::error_handler_t::replace);
}

NodeReport node_report_from_json(const std::string& text) try {
  return json::parse(text).get<NodeReport>();
} catch (const json::exception& error) {
  throw PeerError("a node's report on the others cannot be read ({}); do all nodes run the same version of Trireme?",
                  printable(error.what()));
}

FolderMark::FolderMark(const Introduction& self) : path_(mark_of(self, self.info.log_dir)) {
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  try {
    write_file_atomically(path_, "", {.durable = false});
  } catch (const SystemError&) {
    // A folder that cannot be written is reported when the logs are opened.
  }
}

FolderMark::~FolderMark() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

Clearance check_each_other(const PreflightContext& context) {
  const Deadline deadline = Deadline::in(kCheckTime);
  warn_of_differences(context);
  report(context);
  if (context.self == 0) decide(context, deadline);
  const NodeReport verdict = node_report_from_json(context.store.get("go", deadline));
  if (!verdict.problems.empty()) {
    await_readers(context);
    throw PeerError("{}", join(verdict.problems, "\n"));
  }
  return {.shared_log_dir = verdict.shared_logs};
}

}  // namespace trireme::launch
