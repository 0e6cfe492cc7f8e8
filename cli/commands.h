// The subcommands of `trireme`. Each takes the words behind its name and returns an exit code; errors are thrown.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

using Words = std::vector<std::string>;

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Words& words);
};

/// In the order of the overview.
const std::vector<Command>& commands();

/// A program of its own, `trireme-<name>`, because it needs libtorch.
struct External {
  const char* name;
  const char* summary;
};
const std::vector<External>& externals();

int doctor(const Words& words);
int help(const Words& words);
int launch(const Words& words);
int report(const Words& words);
int tipc(const Words& words);
int top(const Words& words);
int version(const Words& words);

/// Runs a command by name, or the program `trireme-<name>`. Throws UsageError with a spelling hint when there is none.
int run_command(const std::string& name, const Words& words);

/// The overview: what `trireme` alone prints.
std::string overview();

/// Where `trireme-<name>` is: beside this program, else in PATH.
std::optional<std::string> find_external(const std::string& name);
/// Runs `trireme-<name>` (the programs that need libtorch) in place of this process; returns only when there is none.
void run_external(const std::string& name, const Words& words);

}  // namespace trireme::cli
