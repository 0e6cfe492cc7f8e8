#include "cli/tipc_options.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/manual.h"
#include "trireme/core/option_help.h"
#include "trireme/core/options.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

double tolerance_value(const Given& given) {
  double value = -1;
  const char* end = given.text.data() + given.text.size();
  const auto [last, error] = std::from_chars(given.text.data(), end, value);
  if (error != std::errc() || last != end || !std::isfinite(value) || value < 0)
    throw UsageError("{}: must be a number from 0 on, like 1e-3", given.shown());
  return value;
}

std::string precision_value(const Given& given) {
  for (const char* known : {"fp32", "fp16", "bf16", "int8"})
    if (given.text == known) return given.text;
  throw UsageError("{}: must be fp32, fp16, bf16 or int8", given.shown());
}

// --- the tables

std::function<void(const Given&)> add_to(Words& words) {
  return [&words](const Given& given) { words.push_back(given.text); };
}

Option set_option(TipcOptions& o) {
  return {{"--set"},
          "KEY=VALUE",
          "another value for a line; --set 6=KEY:VALUE replaces line 6; may be repeated",
          add_to(o.sets)};
}

std::vector<Option> run_options(TipcOptions& o) {
  return {set_option(o),
          {{"--dry-run"}, "", "print the commands and start nothing", into(o.dry_run, bool_value)},
          {{"--timeout"},
           "TIME",
           "limit for a step (default: 15m; 30 days in whole_train_whole_infer)",
           into(o.timeout, duration_value)},
          {{"--quiet"}, "", "do not show what the steps print; their logs have it", into(o.quiet, bool_value)}};
}

std::vector<Option> compare_options(TipcOptions& o) {
  return {{{"--gt"}, "FILES", "the expected answers: a file or a pattern in quotes; may be repeated", add_to(o.gt)},
          {{"--log"}, "FILES", "the logs, in the same way; may be repeated", add_to(o.log)},
          {{"--atol"},
           "N",
           "a number may be off by atol + rtol x |expected|; below 0.1, atol shrinks with it (default: 1e-3)",
           into(o.tolerance.atol, tolerance_value)},
          {{"--rtol"}, "N", "(default: 1e-3)", into(o.tolerance.rtol, tolerance_value)},
          {{"--precision"},
           "NAME",
           "only logs with fp32, fp16, bf16 or int8 in their names",
           into(o.precision, precision_value)},
          {{"--distinct"},
           "",
           "it is a difference when all pictures of a file have the same answer, which only a note tells else",
           into(o.distinct, bool_value)}};
}

struct Subcommand {
  const char* name;
  const char* usage;
  const char* about;
  const char* notes;
  std::vector<Option> (*options)(TipcOptions& options);
};

std::vector<Option> only_set(TipcOptions& options) {
  return {set_option(options)};
}

constexpr const char* kCases =
    "CONFIG is a file of `key:value` lines, like test_tipc/configs/ResNet50/train_infer_cpp.txt; the file\n"
    "test_tipc/README.md explains them. MODE: lite_train_lite_infer (default), lite_train_whole_infer,\n"
    "whole_train_whole_infer, whole_infer, benchmark_train. On several machines, type the same command on each.\n"
    "\nexamples\n"
    "  trireme tipc prepare test_tipc/configs/ResNet50/train_infer_cpp.txt\n"
    "  trireme tipc run test_tipc/configs/ResNet50/train_infer_cpp.txt --set gpu_list=0,1\n"
    "  trireme tipc list\n";

constexpr Subcommand kSubcommands[] = {
    {"prepare", "CONFIG [MODE] [options]",
     "Makes the few pictures that a lite training needs, in the data folder of CONFIG.\n", kCases, only_set},
    {"run", "CONFIG [MODE] [options]", "Trains, evaluates, exports and infers, over all alternatives of CONFIG.\n",
     kCases, run_options},
    {"list", "[CONFIG [MODE]] [options]", "Shows the cases in test_tipc/configs, or the steps of one.\n", kCases,
     only_set},
    {"compare", "--gt FILES --log FILES [options]",
     "Checks the answers in logs of inference against the expected ones.\n",
     "examples\n"
     "  trireme tipc compare --gt 'expected_*.txt' --log 'test_tipc/output/ResNet50/*/*/cpp_infer_*.log'\n",
     compare_options},
};

const Subcommand& subcommand_named(const std::string& name) {
  for (const Subcommand& subcommand : kSubcommands)
    if (subcommand.name == name) return subcommand;
  const auto near = closest(name, tipc_subcommands());
  throw UsageError("trireme tipc: there is no '{}'{}; there are {}", printable(name),
                   near ? fmt::format(" (did you mean {}?)", *near) : "", join(tipc_subcommands(), ", "));
}

/// The subcommands that have the option: "run", "prepare run list".
std::string owners(const Option& option, TipcOptions& options) {
  Words names;
  for (const Subcommand& subcommand : kSubcommands)
    for (const Option& other : subcommand.options(options))
      if (other.names == option.names) names.emplace_back(subcommand.name);
  return join(names, " ");
}

/// An option of another subcommand, which says where it belongs.
Option foreign(const Subcommand& subcommand, const Option& option, const std::string& owner) {
  const auto refuse = [name = subcommand.name, owner](const Given& given) {
    throw UsageError(
        "trireme tipc {0} has no option '{1}'; it belongs to trireme tipc {2} (see: trireme tipc {0} --help)", name,
        given.source, owner);
  };
  Option row(option.names, "", option.help, refuse);
  row.support = Support::refused;
  return row;
}

CommandSyntax syntax_of(const Subcommand& subcommand, TipcOptions& options) {
  CommandSyntax syntax{.command = fmt::format("trireme tipc {}", subcommand.name),
                       .usage = subcommand.usage,
                       .about = subcommand.about,
                       .notes = subcommand.notes,
                       .operands = Operands::anywhere,
                       .options = subcommand.options(options)};
  for (const Subcommand& other : kSubcommands)
    for (const Option& option : other.options(options))
      syntax.options.push_back(foreign(subcommand, option, owners(option, options)));  // own rows come first
  return syntax;
}

std::string tipc_overview() {
  std::string text;
  for (const Subcommand& subcommand : kSubcommands)
    text += fmt::format("usage: trireme tipc {} {}\n", subcommand.name, subcommand.usage);
  text += "\nTests a model from training on many machines to inference, as a text file says.\n\n";
  for (const Subcommand& subcommand : kSubcommands)
    text += fmt::format("  {:<9} {}", subcommand.name, subcommand.about);
  return text + "\n" + kCases + "\noptions of one: trireme tipc SUBCOMMAND --help\n";
}

std::string all_tables() {
  TipcOptions unused;
  std::string text;
  for (const Subcommand& subcommand : kSubcommands)
    text += fmt::format("{}### trireme tipc {} {}\n\n{}", text.empty() ? "" : "\n", subcommand.name, subcommand.usage,
                        markdown_table(syntax_of(subcommand, unused)));
  return text;
}

std::string tipc_manual() {
  Manual page("trireme tipc", "test a model from training on many machines to inference, as a text file says");
  page.section("SYNOPSIS");
  page.lines(tipc_overview());
  TipcOptions unused;
  for (const Subcommand& subcommand : kSubcommands) {
    page.section(fmt::format("OPTIONS OF {}", subcommand.name));
    const CommandSyntax syntax = syntax_of(subcommand, unused);
    for (const OptionSpec* option : shown_options(syntax)) page.option(*option);
  }
  return page.text();
}

}  // namespace

const Words& tipc_subcommands() {
  static const Words names = [] {
    Words list;
    for (const Subcommand& subcommand : kSubcommands) list.emplace_back(subcommand.name);
    return list;
  }();
  return names;
}

std::string tipc_help(const std::string& topic) {
  if (topic.empty()) return tipc_overview();
  if (topic == kMarkdown) return all_tables();
  if (topic == kManual) return tipc_manual();
  TipcOptions unused;
  return help_text(syntax_of(subcommand_named(topic), unused));
}

TipcOptions read_tipc_options(const std::string& subcommand, const Words& words) {
  TipcOptions options;
  CommandLine line = parse_command_line(syntax_of(subcommand_named(subcommand), options), words);
  options.help = line.help.has_value();
  options.positional = std::move(line.operands);
  return options;
}

}  // namespace trireme::cli
