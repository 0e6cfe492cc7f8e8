#include "cli/tipc_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "trireme/core/error.h"
#include "trireme/core/option_values.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

using Words = std::vector<std::string>;

// --- options

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
  throw UsageError("{}: is none of fp32, fp16, bf16, int8", given.shown());
}

struct Option {
  const char* of;  // the subcommands that have it
  void (*set)(TipcOptions& options, const Given& given);
  bool is_switch = false;  // may stand without a value, which then is True
};

const std::map<std::string, Option>& table() {
  using O = TipcOptions;
  using G = const Given;
  static const std::map<std::string, Option> options = {
      {"--set", {"prepare run list", [](O& o, G& g) { o.sets.push_back(g.text); }}},
      {"--dry-run", {"run", [](O& o, G& g) { o.dry_run = bool_value(g); }, true}},
      {"--quiet", {"run", [](O& o, G& g) { o.quiet = bool_value(g); }, true}},
      {"--timeout", {"run", [](O& o, G& g) { o.timeout = duration_value(g); }}},
      {"--gt", {"compare", [](O& o, G& g) { o.gt.push_back(g.text); }}},
      {"--log", {"compare", [](O& o, G& g) { o.log.push_back(g.text); }}},
      {"--precision", {"compare", [](O& o, G& g) { o.precision = precision_value(g); }}},
      {"--atol", {"compare", [](O& o, G& g) { o.tolerance.atol = tolerance_value(g); }}},
      {"--rtol", {"compare", [](O& o, G& g) { o.tolerance.rtol = tolerance_value(g); }}},
      {"--help", {"prepare run list compare", [](O& o, G& g) { o.help = bool_value(g); }, true}},
  };
  return options;
}

bool has(const Option& option, const std::string& subcommand) {
  const Words of = split(option.of, ' ');
  return std::find(of.begin(), of.end(), subcommand) != of.end();
}

const Option& option_of(const std::string& subcommand, const std::string& name, const std::string& word) {
  const auto found = table().find(name);
  if (found != table().end() && has(found->second, subcommand)) return found->second;
  Words names;
  for (const auto& [known, option] : table())
    if (has(option, subcommand)) names.push_back(known);
  const auto near = closest(name, names);
  const std::string hint = found != table().end() ? fmt::format("; it belongs to trireme tipc {}", found->second.of)
                           : near                 ? fmt::format("; did you mean {}?", *near)
                                                  : "";
  throw UsageError("trireme tipc {0} has no option '{1}'{2} (see: trireme tipc {0} --help)", subcommand,
                   printable(word), hint);
}

// --- help

const std::map<std::string, const char*>& helps() {
  static const std::map<std::string, const char*> texts = {
      {"prepare",
       "usage: trireme tipc prepare CONFIG [MODE] [--set KEY=VALUE]\n"
       "  makes the few pictures that a lite training needs, where CONFIG has its data\n"},
      {"run",
       "usage: trireme tipc run CONFIG [MODE] [options]\n"
       "  trains, evaluates, exports and infers, over all alternatives of CONFIG\n"
       "  --dry-run           print the commands and start nothing\n"
       "  --timeout TIME      what a step may take (default: 15m; 30 days in whole_train_whole_infer)\n"
       "  --quiet             do not show what the steps print; their logs have it\n"
       "  --set KEY=VALUE     another value for a line; --set 6=KEY:VALUE replaces line 6; may be repeated\n"
       "  example: trireme tipc run test_tipc/configs/ResNet50/train_infer_cpp.txt --set gpu_list=0,1\n"},
      {"list",
       "usage: trireme tipc list [CONFIG [MODE]] [--set KEY=VALUE]\n"
       "  shows the cases in test_tipc/configs, or the steps of one\n"},
      {"compare",
       "usage: trireme tipc compare --gt FILES --log FILES [options]\n"
       "  says whether the answers in logs of inference are the expected ones\n"
       "  --gt FILES          the expected answers; a pattern in quotes, or repeated\n"
       "  --log FILES         the logs, in the same way\n"
       "  --atol N, --rtol N  a number may be off by atol + rtol x |expected| (default: 1e-3 each)\n"
       "  --precision P       only logs with fp32, fp16, bf16 or int8 in their names\n"
       "  example: trireme tipc compare --gt 'expected_*.txt' --log 'test_tipc/output/ResNet50/*/*/cpp_infer_*.log'\n"},
  };
  return texts;
}

constexpr const char* kCases =
    "\nCONFIG is a file of `key:value` lines, like test_tipc/configs/ResNet50/train_infer_cpp.txt; "
    "test_tipc/README.md\n"
    "explains them. MODE: lite_train_lite_infer (default), lite_train_whole_infer, whole_train_whole_infer,\n"
    "whole_infer, benchmark_train. On several machines, type the same command on each.\n";

}  // namespace

const Words& tipc_subcommands() {
  static const Words names = {"prepare", "run", "list", "compare"};
  return names;
}

std::string tipc_help(const std::string& subcommand) {
  if (!subcommand.empty()) return helps().at(subcommand) + std::string(subcommand == "compare" ? "" : kCases);
  std::string text;
  for (const std::string& name : tipc_subcommands()) text += (text.empty() ? "" : "\n") + std::string(helps().at(name));
  return text + kCases;
}

TipcOptions read_tipc_options(const std::string& subcommand, const Words& words) {
  TipcOptions options;
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (!word.starts_with("-")) {
      options.positional.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    std::string name = word == "-h" ? "--help" : word.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    const Option& option = option_of(subcommand, name, word);
    const bool takes_next = equals == std::string::npos && !option.is_switch;
    if (takes_next && at + 1 == words.size())
      throw UsageError("{} needs a value (see: trireme tipc {} --help)", name, subcommand);
    option.set(options, {name, takes_next                    ? words[++at]
                               : equals == std::string::npos ? "True"
                                                             : word.substr(equals + 1)});
  }
  return options;
}

}  // namespace trireme::cli
