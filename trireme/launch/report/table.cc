#include "trireme/launch/report/table.h"

#include <fmt/format.h>

#include <array>

#include "trireme/core/error.h"
#include "trireme/core/shell.h"
#include "trireme/core/text.h"
#include "trireme/launch/worker_environment.h"

namespace trireme::launch {
namespace {

constexpr size_t kValueWidth = 45;
constexpr size_t kInnerWidth = 87;

// A value that does not fit keeps a window of its text: of what must go, two thirds go in front and one third behind,
// so that of a list of endpoints the middle is seen.
std::string fitted(const std::string& value) {
  if (value.size() < kValueWidth) return value;
  const size_t kept = kValueWidth - 2 * std::string_view("... ").size();
  return fmt::format("... {}... ", value.substr((value.size() - kept) * 2 / 3, kept));
}

std::string row(std::string_view key, const std::string& value) {
  return fmt::format("    |{:>40}  {:^45}|\n", key, fitted(value));
}

std::string rule(char line) {
  return fmt::format("    +{}+\n", std::string(kInnerWidth, line));
}

std::string value_or_empty(const WorkerPlan& worker, std::string_view name) {
  if (name == "TRIREME_BACKEND") return worker.cpu_backend;
  if (name == "PADDLE_TRAINER_ENDPOINTS" && worker.trainer_endpoints) return *worker.trainer_endpoints;
  return value_of(worker.environment, name).value_or("");
}

std::string command_line(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& word : command) words.push_back(printable(shell_word(word)));
  return join(words, " ");
}

std::string plural(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string worker_head(const JobPlan& plan, const WorkerPlan& worker) {
  const NodeInfo& node = plan.nodes.at(static_cast<size_t>(worker.node));
  return fmt::format("rank {}: node {} ({}), local rank {}, {}, endpoint {}\n  command: {}\n", worker.rank, worker.node,
                     node.host, worker.local_rank, worker.device, to_string(worker.endpoint),
                     command_line(worker.command));
}

std::string variable(const std::string& name, const std::string& value) {
  return fmt::format("    {}={}\n", name, printable(value));
}

std::string whole_environment(const WorkerPlan& worker) {
  std::string text = "  environment:\n";
  for (const auto& [name, value] : worker.environment) text += variable(name, value);
  for (const std::string& name : worker.unset) text += fmt::format("    {} is removed\n", name);
  return text;
}

std::string differing_environment(const WorkerPlan& first, const WorkerPlan& worker) {
  std::string text = fmt::format("  environment, where it differs from rank {}:\n", first.rank);
  for (const auto& [name, value] : worker.environment)
    if (value_of(first.environment, name) != value) text += variable(name, value);
  for (const auto& [name, value] : first.environment)
    if (!value_of(worker.environment, name)) text += fmt::format("    {} is not set\n", name);
  return text;
}

}  // namespace

std::string environment_table(const WorkerPlan& first, int local_processes) {
  const bool gpu = value_of(first.environment, "FLAGS_selected_gpus").has_value();
  const std::array<const char*, 5> rows = {"PADDLE_CURRENT_ENDPOINT", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS",
                                           gpu ? "FLAGS_selected_gpus" : "TRIREME_BACKEND", "PADDLE_TRAINER_ID"};
  std::string text = fmt::format(
      "Local start {} processes. First process distributed environment info (Only For Debug):\n", local_processes);
  text += rule('=') + row("Distributed Envs", "Value") + rule('-');
  for (const char* name : rows) text += row(name, value_or_empty(first, name));
  return text + rule('=');
}

std::string dry_run_text(const JobPlan& plan) {
  std::string text =
      fmt::format("{} on {}\n", plural(plan.workers.size(), "worker"), plural(plan.nodes.size(), "node"));
  for (const WorkerPlan& worker : plan.workers) {
    const WorkerPlan& first = plan.workers.front();
    text += "\n" + worker_head(plan, worker);
    text += &worker == &first ? whole_environment(worker) : differing_environment(first, worker);
  }
  return text;
}

}  // namespace trireme::launch
