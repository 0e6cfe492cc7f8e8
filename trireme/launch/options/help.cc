#include "trireme/launch/options/help.h"

#include <fmt/format.h>

#include "trireme/core/error.h"
#include "trireme/core/manual.h"
#include "trireme/core/option_help.h"
#include "trireme/core/text.h"
#include "trireme/launch/options/option_table.h"

namespace trireme::launch {
namespace {

constexpr size_t kTextColumn = 38;  // where the help of an option begins

struct TopicInfo {
  Topic topic;
  std::string name;
  std::string about;
};

const std::vector<TopicInfo>& topics() {
  static const std::vector<TopicInfo> list = {
      {Topic::processes, "processes", "how many, on which GPUs and cores"},
      {Topic::nodes, "nodes", "several machines"},
      {Topic::logs, "logs", "files and console"},
      {Topic::failure, "failure", "restart and stop"},
      {Topic::debug, "debug", "look before you start, tools around a rank"},
      {Topic::compat, "compat", "coming from Paddle, torchrun or Horovod"},
  };
  return list;
}

std::string option_text(const Option& option) {
  return option_line(option, kTextColumn);
}

std::string options_of(Topic topic) {
  std::string text;
  for (const Option& option : option_table())
    if (option.topic == topic && option.support == Support::full) text += option_text(option);
  return text;
}

// "--rank = --node_rank": long names beside the first.
std::string alias_list() {
  std::vector<std::string> pairs;
  for (const Option& option : option_table())
    for (size_t i = 1; i < option.names.size(); ++i)
      if (option.support == Support::full && option.names[i].starts_with("--"))
        pairs.push_back(option.names[i] + "=" + option.names[0]);
  return join(pairs, ", ");
}

std::string names_with(Support support) {
  std::vector<std::string> names;
  for (const Option& option : option_table())
    for (const std::string& name : option.names)
      if (option.support == support) names.push_back(name);
  return join(names, ", ");
}

std::string compat_notes() {
  return "\n" + wrapped("  other names:", 15, alias_list()) + wrapped("  ignored:", 15, names_with(Support::ignored)) +
         wrapped("  refused, with the reason:", 4, names_with(Support::refused)) +
         "  Hyphens and underscores are one. Unlike Paddle, the command line wins over PADDLE_* variables.\n";
}

std::string variables_of(Topic topic) {
  std::vector<std::string> pairs;
  for (const Option& option : option_table())
    for (const std::string& variable : option.variables)
      if (option.topic == topic) pairs.push_back(variable + " (" + option.names.front() + ")");
  return pairs.empty() ? "" : "\n" + wrapped("  when the option is absent:", 4, join(pairs, ", "));
}

std::string notes_of(Topic topic) {
  switch (topic) {
    case Topic::processes:
      return "\n  With GPUs, process i takes the i-th of them. -n 1 gets the whole list of --gpus, -n 2 half of it\n"
             "  each. CUDA_VISIBLE_DEVICES=-1 trains on the CPU; -n cpu starts one process for each core.\n";
    case Topic::nodes:
      return "\n  Three ways to meet: the same command on each machine with --ips; --nnodes N with --master; or from\n"
             "  one terminal with --hostfile and --ssh. Names, IPv4 and IPv6 addresses ([::1]:6070 with a port).\n"
             "  Times are like 10, 10s, 500ms, 2m; a plain number is seconds.\n";
    case Topic::compat:
      return compat_notes();
    default:
      return "";
  }
}

std::string topic_text(const TopicInfo& info) {
  return fmt::format("trireme launch: {} ({})\n\n", info.name, info.about) + options_of(info.topic) +
         notes_of(info.topic) + variables_of(info.topic);
}

constexpr const char* kUsage = "trireme launch [options] PROGRAM [args]";
constexpr const char* kAbout =
    "Starts PROGRAM once for each GPU (or -n times), on one machine or many, watches it, and stops all\n"
    "processes when one fails. PROGRAM is any executable; *.py runs with python3.\n";
constexpr const char* kExamples =
    "  trireme launch -n 2 ./train --epochs 10                         two processes here\n"
    "  trireme launch --gpus 0,1 ./train                               one process on each of two GPUs\n"
    "  trireme launch --ips 10.0.0.1,10.0.0.2 --gpus 0,1 ./train       on both machines: four processes\n"
    "  trireme launch --dashboard 8080 -n 2 ./train                    a web page of the running job\n";

std::string overview() {
  std::string text = fmt::format("usage: {}\n\n{}\noptions used most:\n", kUsage, kAbout);
  for (const char* name :
       {"-n", "--gpus", "--ips", "--nnodes", "--master", "--log_dir", "--dashboard", "--max_restart", "--dry_run"})
    text += option_text(*find_option(name));
  text += fmt::format("\nexamples:\n{}\nmore options: trireme launch --help TOPIC\n", kExamples);
  for (const TopicInfo& info : topics()) text += wrapped("  " + info.name, 14, info.about);
  return text + wrapped("  all", 14, "everything");
}

// Each topic is a section.
std::string launch_manual() {
  Manual page("trireme launch", "start a program as many processes, on one machine or several");
  page.section("SYNOPSIS");
  page.lines(kUsage);
  page.section("DESCRIPTION");
  page.lines(kAbout);
  for (const TopicInfo& info : topics()) {
    page.section(fmt::format("OPTIONS: {}", info.about));
    for (const Option& option : option_table())
      if (option.topic == info.topic && option.support == Support::full) page.option(option);
    page.lines(notes_of(info.topic) + variables_of(info.topic));
  }
  page.section("EXAMPLES");
  page.lines(kExamples);
  return page.text();
}

}  // namespace

const std::vector<std::string>& help_topics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const TopicInfo& info : topics()) list.push_back(info.name);
    return list;
  }();
  return names;
}

std::string launch_help(std::string_view topic) {
  if (topic.empty()) return overview();
  if (topic == kMarkdown) return options_markdown();
  if (topic == kManual) return launch_manual();
  std::string everything;
  for (const TopicInfo& info : topics()) {
    if (topic == info.name) return topic_text(info);
    everything += (everything.empty() ? "" : "\n") + topic_text(info);
  }
  if (topic == "all") return everything;
  const auto meant = closest(topic, help_topics());
  throw UsageError("--help {}: there is no such topic{}; topics are {}, all", printable(topic),
                   meant ? fmt::format(" (did you mean {}?)", *meant) : "", join(help_topics(), ", "));
}

std::string options_markdown() {
  std::string text;
  for (const TopicInfo& info : topics()) {
    text += fmt::format("{}### {}: {}\n\n| option | meaning | variable |\n|---|---|---|\n", text.empty() ? "" : "\n",
                        info.name, info.about);
    for (const Option& option : option_table())
      if (option.topic == info.topic)
        text += fmt::format("{} {} |\n", markdown_row(option), code_list(option.variables));
  }
  return text;
}

}  // namespace trireme::launch
