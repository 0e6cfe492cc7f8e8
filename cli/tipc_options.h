// The command line of `trireme tipc`. Each subcommand has its own options; an option of another one is an error that
// names its owner.
//
//   const TipcOptions options = read_tipc_options("run", {"case.txt", "--set", "gpu_list=0", "--dry-run"});
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "trireme/tipc/compare.h"

namespace trireme::cli {

struct TipcOptions {
  std::vector<std::string> positional;
  std::vector<std::string> sets;
  std::optional<std::chrono::milliseconds> timeout;
  bool dry_run = false, quiet = false, help = false;
  std::vector<std::string> gt, log;
  std::string precision;
  tipc::Tolerance tolerance;
  bool distinct = false;
};

/// prepare, run, list, compare.
const std::vector<std::string>& tipc_subcommands();

/// Throws UsageError, also for a subcommand that does not exist.
TipcOptions read_tipc_options(const std::string& subcommand, const std::vector<std::string>& words);

/// "" is the overview; else the help of a subcommand, or "--markdown": the tables of docs/.
std::string tipc_help(const std::string& topic = "");

/// `trireme tipc compare`.
int tipc_compare(const TipcOptions& options);

}  // namespace trireme::cli
