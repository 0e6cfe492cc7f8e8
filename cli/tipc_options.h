// The command line of `trireme tipc`. Each subcommand has options of its own; one of another is an error, and so is
// what it would not use.
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
};

/// prepare, run, list, compare.
const std::vector<std::string>& tipc_subcommands();

TipcOptions read_tipc_options(const std::string& subcommand, const std::vector<std::string>& words);

/// Of one subcommand, or of all.
std::string tipc_help(const std::string& subcommand = "");

/// `trireme tipc compare`.
int tipc_compare(const TipcOptions& options);

}  // namespace trireme::cli
