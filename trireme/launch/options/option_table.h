// The one table of `trireme launch`'s options. The parser, the help, docs/launch.md, the variables that stand in for
// options and the spelling hints are all made from it: to add an option, add a line.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/core/options.h"
#include "trireme/launch/options/option_values.h"
#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// A request in the making: options whose meaning depends on others wait here until all are read.
struct Draft {
  Request request;
  std::map<std::string, Given> given;  // by the option's first name
  std::vector<std::pair<LogLevel, std::string>> notices;

  std::optional<std::string> rdzv_backend;
  std::optional<std::string> rdzv_endpoint;
  std::optional<std::string> master_addr;
  std::optional<uint16_t> master_port;
  std::optional<int> total;  // -np: processes of the whole job
  bool standalone = false;

  bool has(const std::string& option) const { return given.contains(option); }
  /// "--nnodes 3" or "PADDLE_NNODES=3", for messages. Requires has(option).
  std::string shown(const std::string& option) const { return given.at(option).shown(); }
};

enum class Topic {
  processes,
  nodes,
  logs,
  failure,
  debug,
  compat,
  internal,  // for Trireme itself; in no help
};

/// What an option says about the cluster, for rules between options.
enum class Role {
  other,
  meeting_place,  // how nodes find each other: at most one of these
  cluster_shape,  // how many nodes, which one is this
};

/// `names` are spelled with underscores. The help of an ignored or refused option says why, and what to do instead.
struct Option : OptionSpec {
  std::vector<std::string> variables;  // environment variables that stand in, the strongest first
  Topic topic = Topic::compat;
  Role role = Role::other;
  std::function<void(Draft&, const Given&)> apply;
};

const std::vector<Option>& option_table();

/// By any of its names, hyphens or underscores; nullptr when there is none.
const Option* find_option(std::string_view name);

/// The rules between options, once all of them are read (option_check.cc): fills in what follows from several together
/// (meeting point, number of nodes, slots) and throws UsageError for the first contradiction.
void settle(Draft& draft);

}  // namespace trireme::launch
