// `trireme tipc`: the chain of train, eval, export and inference that a text file describes.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/tipc_options.h"
#include "trireme/core/error.h"
#include "trireme/core/options.h"
#include "trireme/core/shell.h"
#include "trireme/tipc/chain.h"
#include "trireme/tipc/lite_data.h"
#include "trireme/tipc/own_node.h"

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;
using tipc::Mode;

struct Chosen {
  tipc::Case test;
  Mode mode = Mode::lite_train_lite_infer;
};

Chosen choose(const TipcOptions& options) {
  if (options.positional.empty() || options.positional.size() > 2)
    throw UsageError("expected CONFIG and MODE, got {} words (see: trireme help tipc)", options.positional.size());
  tipc::ConfigText config = tipc::read_config(options.positional[0]);
  for (const std::string& assignment : options.sets) tipc::set_value(config, assignment);
  Chosen chosen{tipc::make_case(config)};
  if (options.positional.size() == 2) chosen.mode = tipc::parse_mode(options.positional[1], "MODE");
  return chosen;
}

// --- prepare

int prepare(const TipcOptions& options) {
  const auto [test, mode] = choose(options);
  const bool lite = tipc::data_state(test.data_folder) == tipc::DataState::lite;
  if (!tipc::trains_lite(mode)) {
    if (lite)
      throw UsageError(
          "{} holds the few pictures of a lite training; for the mode {} put your data set there and remove {}",
          test.data_folder, to_string(mode), tipc::lite_data_mark(test.data_folder).string());
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

/// Colours only on a terminal.
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

/// On a machine that is not in the list, a chain that is only shown is that of the first machine.
std::vector<int> nodes_of(const Chosen& chosen, bool only_shown) try {
  if (chosen.mode == Mode::whole_infer) return {};  // the others join machines
  return tipc::own_nodes(chosen.test);
} catch (const UsageError& error) {
  if (!only_shown) throw;
  fmt::print(stderr, "trireme: note: {}. What follows is for the first machine.\n", error.what());
  return {};
}

/// Not an error: a program of the user's may need no data. Mostly `prepare` was forgotten.
void note_absent_data(const Chosen& chosen, const std::string& config) {
  const auto& [test, mode] = chosen;
  if (!tipc::trains_lite(mode) || tipc::data_state(test.data_folder) != tipc::DataState::absent) return;
  print_line(tipc::Tone::notice, fmt::format("note: there is no data in {}; to make some: trireme tipc prepare {} {}",
                                             test.data_folder, shell_word(config), to_string(mode)));
}

/// The chain that is run and the one that is shown are the same.
tipc::Chain chain_of(const TipcOptions& options, bool only_shown) {
  const Chosen chosen = choose(options);
  const std::chrono::milliseconds usual = chosen.mode == Mode::whole_train_whole_infer ? 30 * 24h : 15min;
  tipc::ChainOptions chain{.timeout = options.timeout.value_or(usual), .say = print_line};
  if (!options.quiet) chain.output = print_bytes;
  chain.plan.nodes = nodes_of(chosen, only_shown);
  if (!only_shown) note_absent_data(chosen, options.positional[0]);
  return {chosen.test, chosen.mode, std::move(chain)};
}

int run(const TipcOptions& options) {
  tipc::Chain chain = chain_of(options, options.dry_run);
  if (!options.dry_run) {
    const int code = chain.run();
    if (code != 0) note_absent_data(choose(options), options.positional[0]);  // far below where it was said first
    return code;
  }
  for (const tipc::Step& step : chain.steps())
    fmt::print("{}{}\n", step.skip.empty() ? "" : fmt::format("# skipped ({}): ", step.skip), shown(step));
  return 0;
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
  namespace fs = std::filesystem;
  constexpr const char* kFolder = "test_tipc/configs";
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  std::error_code failed;
  Words files;
  for (fs::recursive_directory_iterator at(kFolder, kOptions, failed), end; !failed && at != end; at.increment(failed))
    if (at->path().extension() == ".txt") files.push_back(at->path().string());
  if (files.empty()) throw UsageError("no test case in {}; is this the right folder?", kFolder);
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) fmt::print("{:<72} {}\n", file, describe(file));
  return 0;
}

int list(const TipcOptions& options) {
  if (options.positional.empty()) return list_configs();
  const tipc::Chain chain = chain_of(options, true);
  std::string group;
  for (const tipc::Step& step : chain.steps()) {
    if (step.group != group) fmt::print("{}\n", group = step.group);
    fmt::print("  {}{}\n", step.name, step.skip.empty() ? "" : fmt::format(" (skipped: {})", step.skip));
  }
  return 0;
}

}  // namespace

int tipc(const Words& words) {
  if (words.empty() || words[0].starts_with('-')) {
    const CommandLine line = parse_command_line({.command = "trireme tipc"}, words);
    fmt::print("{}", tipc_help(line.help.value_or("")));
    return words.empty() ? exit_code::kUsage : 0;
  }
  const TipcOptions options = read_tipc_options(words[0], {words.begin() + 1, words.end()});
  if (options.help) return fmt::print("{}", tipc_help(words[0])), 0;
  if (words[0] == "prepare") return prepare(options);
  if (words[0] == "run") return run(options);
  if (words[0] == "list") return list(options);
  return tipc_compare(options);
}

}  // namespace trireme::cli
