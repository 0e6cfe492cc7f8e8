// `trireme tipc`: the chain of train, eval, export and inference that a text file describes.
#include <fmt/core.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"
#include "trireme/launch/options/option_values.h"
#include "trireme/tipc/chain.h"
#include "trireme/tipc/compare.h"
#include "trireme/tipc/lite_data.h"
#include "trireme/tipc/own_node.h"

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;
using tipc::Mode;

constexpr const char* kHelp =
    "usage: trireme tipc prepare CONFIG MODE      make the few pictures that a lite training needs\n"
    "       trireme tipc run CONFIG MODE          train, eval, export and infer, over all alternatives of CONFIG\n"
    "       trireme tipc list [CONFIG [MODE]]     the cases in test_tipc/configs, or the steps of one\n"
    "       trireme tipc compare --gt FILES --log FILES [--atol 1e-3] [--rtol 1e-3] [--precision fp32]\n"
    "\n"
    "CONFIG is a file of `key:value` lines, like test_tipc/configs/ResNet50/train_infer_cpp.txt; test_tipc/README.md\n"
    "explains them. MODE: lite_train_lite_infer (default), lite_train_whole_infer, whole_train_whole_infer,\n"
    "whole_infer, benchmark_train. On several machines, type the same command on each.\n"
    "\n"
    "  --set KEY=VALUE     another value for a line; --set 6=KEY:VALUE replaces line 6; may be repeated\n"
    "  --dry-run           run: print the commands and start nothing\n"
    "  --timeout TIME      run: what a step may take (default: 15m; 30 days in whole_train_whole_infer)\n"
    "  --quiet             run: do not show what the steps print; their logs have it\n"
    "\n"
    "examples\n"
    "  trireme tipc run test_tipc/configs/ResNet50/train_infer_cpp.txt --set gpu_list=0,1\n"
    "  trireme tipc compare --gt 'expected_*.txt' --log 'test_tipc/output/ResNet50/*/*/cpp_infer_*.log'\n";

// --- the command line

struct Options {
  Words positional;
  Words sets;
  std::optional<std::string> timeout;
  bool dry_run = false, quiet = false;
  Words gt, log;
  std::string precision;
  tipc::Tolerance tolerance;
};

double tolerance_value(const std::string& name, const std::string& text) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0))
    throw UsageError("{} {}: expected a number like 1e-3", name, printable(text));
  return value;
}

/// Behind '=' or the next word, which is then taken.
std::string value_of(const Words& words, size_t& at) {
  const size_t equals = words[at].find('=');
  if (equals != std::string::npos) return words[at].substr(equals + 1);
  if (at + 1 >= words.size()) throw UsageError("{} needs a value (see: trireme help tipc)", words[at]);
  return words[++at];
}

/// False: there is no such option.
bool read_option(const Words& words, size_t& at, Options& options) {
  std::string name = words[at].substr(0, words[at].find('='));
  for (char& c : name)
    if (c == '_') c = '-';
  if (name == "--dry-run") return options.dry_run = true;
  if (name == "--quiet") return options.quiet = true;
  if (name == "--set") return options.sets.push_back(value_of(words, at)), true;
  if (name == "--timeout") return options.timeout = value_of(words, at), true;
  if (name == "--gt") return options.gt.push_back(value_of(words, at)), true;
  if (name == "--log") return options.log.push_back(value_of(words, at)), true;
  if (name == "--precision") return options.precision = value_of(words, at), true;
  if (name == "--atol") return options.tolerance.atol = tolerance_value(name, value_of(words, at)), true;
  if (name == "--rtol") return options.tolerance.rtol = tolerance_value(name, value_of(words, at)), true;
  return false;
}

Options read_options(const Words& words) {
  Options options;
  for (size_t at = 0; at < words.size(); ++at) {
    if (!words[at].starts_with("-")) {
      options.positional.push_back(words[at]);
    } else if (const size_t word = at; !read_option(words, at, options)) {
      const auto near = closest(words[word], {"--set", "--dry-run", "--timeout", "--quiet", "--gt", "--log", "--atol",
                                              "--rtol", "--precision"});
      throw UsageError("trireme tipc has no option '{}'{} (see: trireme help tipc)", printable(words[word]),
                       near ? fmt::format("; did you mean {}?", *near) : "");
    }
  }
  return options;
}

struct Chosen {
  tipc::Case test;
  Mode mode = Mode::lite_train_lite_infer;
};

Chosen choose(const Options& options) {
  if (options.positional.empty() || options.positional.size() > 2)
    throw UsageError("expected CONFIG and MODE, got {} words (see: trireme help tipc)", options.positional.size());
  tipc::ConfigText config = tipc::read_config(options.positional[0]);
  for (const std::string& assignment : options.sets) tipc::set_value(config, assignment);
  Chosen chosen{tipc::make_case(config)};
  if (options.positional.size() == 2) chosen.mode = tipc::parse_mode(options.positional[1], "MODE");
  return chosen;
}

// --- prepare

int prepare(const Options& options) {
  const auto [test, mode] = choose(options);
  const bool lite = tipc::data_state(test.data_folder) == tipc::DataState::lite;
  if (!tipc::trains_lite(mode)) {
    if (lite)
      throw UsageError("{} holds the few pictures of a lite training; put your data set there for the mode {}",
                       test.data_folder, to_string(mode));
    fmt::print("nothing to prepare: the mode {} takes your own data\n", to_string(mode));
    return 0;
  }
  const int images = mode == Mode::benchmark_train ? 256 : 16;
  tipc::make_lite_data(test.data_folder, {.images = images});
  fmt::print("{}: {} pictures each in train/ and val/, with train_list.txt and val_list.txt\n", test.data_folder,
             images);
  return 0;
}

// --- run

/// Colours only for people.
void print_line(tipc::Tone tone, std::string_view line) {
  constexpr const char* kColours[] = {"", "\033[32m", "\033[31m", "\033[33m"};
  const char* colour = ::isatty(STDOUT_FILENO) != 0 ? kColours[static_cast<size_t>(tone)] : "";
  fmt::print("{}{}{}\n", colour, line, *colour != '\0' ? "\033[0m" : "");
  std::fflush(stdout);
}

void print_bytes(std::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
}

std::chrono::milliseconds timeout_of(const Options& options, Mode mode) {
  if (options.timeout) return launch::duration_value({"--timeout", *options.timeout});
  return mode == Mode::whole_train_whole_infer ? 30 * 24h : 15min;
}

int run(const Options& options) {
  const auto [test, mode] = choose(options);
  tipc::ChainOptions chain_options{.timeout = timeout_of(options, mode), .say = print_line};
  if (!options.quiet) chain_options.output = print_bytes;
  if (options.dry_run) {
    for (const tipc::Step& step : tipc::make_plan(test, mode)) fmt::print("{}\n", shown(step));
    return 0;
  }
  if (mode != Mode::whole_infer) chain_options.plan.nodes = tipc::own_nodes(test);  // the others join machines
  return tipc::Chain(test, mode, std::move(chain_options)).run();
}

// --- list

std::string describe(const std::string& file) {
  try {
    const tipc::ConfigText text = tipc::read_config(file);
    const tipc::Case test = tipc::make_case(text);
    return fmt::format("{:<12} {}", text.at("trainer").value, text.at("gpu_list").value);
  } catch (const UsageError& error) {
    return fmt::format("error: {}", error.what());
  }
}

int list_configs() {
  constexpr const char* kFolder = "test_tipc/configs";
  std::error_code failed;
  Words files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kFolder, failed))
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  if (files.empty()) throw UsageError("no test case in {}; is this the right folder?", kFolder);
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) fmt::print("{:<72} {}\n", file, describe(file));
  return 0;
}

int list(const Options& options) {
  if (options.positional.empty()) return list_configs();
  const auto [test, mode] = choose(options);
  std::string group;
  for (const tipc::Step& step : tipc::make_plan(test, mode)) {
    if (step.group != group) fmt::print("{}\n", group = step.group);
    fmt::print("  {}{}\n", step.name, step.skip.empty() ? "" : fmt::format(" (skipped: {})", step.skip));
  }
  return 0;
}

// --- compare

struct GlobResult : glob_t {
  explicit GlobResult(const std::string& pattern) : glob_t{}, code(::glob(pattern.c_str(), 0, nullptr, this)) {}
  ~GlobResult() { ::globfree(this); }
  GlobResult(const GlobResult&) = delete;
  GlobResult& operator=(const GlobResult&) = delete;
  int code;
};

Words files_of(const char* option, const Words& patterns) {
  Words files;
  for (const std::string& pattern : patterns) {
    const GlobResult found(pattern);
    if (found.code != 0) throw UsageError("{} {}: no such file", option, printable(pattern));
    files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  if (files.empty()) throw UsageError("compare needs {} FILES (see: trireme help tipc)", option);
  return files;
}

tipc::Answers answers_of(const std::string& file) {
  const auto text = read_file(file);
  if (!text) throw UsageError("cannot read {}", file);
  tipc::Answers answers = tipc::parse_answers(*text);
  if (answers.empty()) throw UsageError("{} has no answers: lines like image<TAB>json", file);
  return answers;
}

/// The file for that precision, else that for fp32, else one without a precision in its name.
const std::string& expected_for(const std::string& precision, const Words& files) {
  for (const std::string& wanted : {precision, std::string("fp32"), std::string()})
    for (const std::string& file : files)
      if (tipc::precision_in_name(file) == wanted) return file;
  throw UsageError("--gt: none of {} is for {} or fp32", join(files, ", "), precision);
}

bool compare_file(const std::string& gt, const std::string& log, const tipc::Tolerance& tolerance) {
  const Words wrong = differences(answers_of(gt), answers_of(log), tolerance);
  if (wrong.empty()) {
    fmt::print("Assert allclose passed! The results of {} and {} are consistent!\n", log, gt);
    return true;
  }
  fmt::print("The results of {} and {} are inconsistent!\n", log, gt);
  for (const std::string& line : wrong) fmt::print("  {}\n", line);
  return false;
}

int compare(const Options& options) {
  const Words gts = files_of("--gt", options.gt);
  bool same = true, any = false;
  for (const std::string& log : files_of("--log", options.log)) {
    const std::string precision = tipc::precision_in_name(log);
    if (!options.precision.empty() && !precision.empty() && precision != options.precision) continue;
    any = true;
    same &= compare_file(expected_for(precision, gts), log, options.tolerance);
  }
  if (!any) throw UsageError("--precision {}: no log is of that precision", options.precision);
  return same ? 0 : 1;
}

}  // namespace

int tipc(const Words& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    fmt::print("{}", kHelp);
    return words.empty() ? exit_code::kUsage : 0;
  }
  const Options options = read_options({words.begin() + 1, words.end()});
  if (words[0] == "prepare") return prepare(options);
  if (words[0] == "run") return run(options);
  if (words[0] == "list") return list(options);
  if (words[0] == "compare") return compare(options);
  const auto near = closest(words[0], {"prepare", "run", "list", "compare"});
  throw UsageError("trireme tipc: there is no '{}'{}; there are prepare, run, list and compare", printable(words[0]),
                   near ? fmt::format(" (did you mean {}?)", *near) : "");
}

}  // namespace trireme::cli
