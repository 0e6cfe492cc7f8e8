#include "trireme/launch/options/options.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/launch/clusters/cluster.h"
#include "trireme/launch/options/option_table.h"
#include "trireme/launch/worker_environment.h"

namespace trireme::launch {
namespace {

// The table with its rows bound to `draft`.
CommandSyntax syntax_for(const std::string& command, Draft& draft) {
  CommandSyntax syntax{.command = command, .operands = Operands::program};
  for (const Option& option : option_table()) {
    const auto apply = [&draft, &option](const Given& given) {
      option.apply(draft, given);
      draft.given[option.names.front()] = given;
    };
    syntax.options.emplace_back(option.names, option.value, option.help, apply, option.takes);
    syntax.options.back().support = option.support;
  }
  return syntax;
}

// --- variables

// The option of the command line that makes a variable about the cluster meaningless.
std::optional<std::string> overruled_by(const Option& option, const Draft& draft) {
  if (draft.standalone && option.role != Role::other) return "--standalone";
  if (option.role != Role::meeting_place) return std::nullopt;
  for (const Option& other : option_table())
    if (other.role == Role::meeting_place && draft.has(other.names[0]) &&
        draft.given.at(other.names[0]).source.starts_with('-'))
      return draft.shown(other.names[0]);
  return std::nullopt;
}

void use_variable(const Option& option, const Given& variable, Draft& draft) {
  const std::string& name = option.names.front();
  std::optional<std::string> winner = overruled_by(option, draft);
  if (draft.has(name)) {
    if (draft.given.at(name).text == variable.text) return;
    winner = draft.shown(name);
  }
  if (winner) {
    draft.notices.emplace_back(LogLevel::warning,
                               fmt::format("[launch] {} is ignored: {} wins", variable.shown(), *winner));
    return;
  }
  option.apply(draft, variable);
  draft.given[name] = variable;
  draft.notices.emplace_back(LogLevel::info, fmt::format("[launch] {} is used as {}", variable.shown(), name));
}

// Whether these are the variables of a launcher's worker: they describe that job, not one to start.
bool is_worker(const Environment& variables) {
  return !value_of(variables, "TRIREME_JOB_ID").value_or("").empty();
}

void read_variables(const Environment& variables, Draft& draft) {
  if (is_worker(variables)) return;
  for (const Option& option : option_table())
    for (const std::string& name : option.variables)
      if (const auto value = value_of(variables, name); value && !value->empty())
        use_variable(option, Given{name, *value}, draft);
}

// Whether the user has said which machines there are, or that there is this one alone.
bool names_machines(const Draft& draft) {
  return draft.standalone || draft.request.ssh_child || !draft.request.hosts.empty() || draft.request.nodes == 1;
}

bool meets_somewhere(const Draft& draft) {
  const std::vector<Option>& table = option_table();
  return std::any_of(table.begin(), table.end(), [&](const Option& option) {
    return option.role == Role::meeting_place && draft.has(option.names.front());
  });
}

// The scheduler that started this launcher knows the machines. What the user says comes first.
void read_cluster(const Environment& variables, Draft& draft) {
  if (is_worker(variables) || names_machines(draft)) return;
  if (is_indexed_pod(variables) && !draft.has("--nnodes")) {
    draft.notices.emplace_back(
        LogLevel::warning,
        "[launch] this is a pod of an indexed Job, which does not say how many there are, and trains "
        "alone; give --nnodes to train together, or --standalone");
    return;
  }
  const bool have_a_place = meets_somewhere(draft);
  for (const auto& [name, value] : cluster_options(variables)) {
    const Option& option = *find_option(name);
    const bool needed = option.role == Role::meeting_place ? !have_a_place : !draft.has(name);
    if (needed) use_variable(option, value, draft);
  }
}

// A launcher in a worker of another job: the folder of that job is in use, so each worker gets one of its own in it.
void settle_folder(const Environment& variables, Draft& draft) {
  if (!is_worker(variables) || draft.has("--log_dir")) return;
  const std::string outer = value_of(variables, "PADDLE_LOG_DIR").value_or(draft.request.log_dir);
  draft.request.log_dir = fmt::format("{}/nested.{}", outer, value_of(variables, "RANK").value_or("0"));
}

}  // namespace

std::string Request::nodes_text() const {
  const int most = nodes.value_or(1);
  return min_nodes > 0 ? fmt::format("{}:{}", min_nodes, most) : std::to_string(most);
}

Request parse_launch(const std::vector<std::string>& args, const Environment& variables, const std::string& command) {
  Draft draft;
  CommandLine line = parse_command_line(syntax_for(command, draft), args);
  draft.request.help_topic = std::move(line.help);
  if (draft.request.help_topic) return std::move(draft.request);
  draft.request.command = std::move(line.operands);
  read_variables(variables, draft);
  read_cluster(variables, draft);
  settle_folder(variables, draft);
  settle(draft);
  for (const auto& [level, text] : draft.notices)
    if (level >= draft.request.log_level) log(level, text);
  return std::move(draft.request);
}

}  // namespace trireme::launch
