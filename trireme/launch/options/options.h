// The command line of `trireme launch`: arguments and variables in, a checked Request out.
//
//   Request request = parse_launch({"-n", "2", "./train", "--lr", "0.1"}, env::all());
//   if (request.help_topic) return print(launch_help(*request.help_topic));
//
// Everything from the first word that is not an option (or from behind `--`) is PROGRAM and its arguments, untouched;
// core/options.h has the other rules. An option that is not on the command line may come from its environment variable
// (PADDLE_NNODES …), unless this process is itself a worker of Trireme (TRIREME_JOB_ID), whose variables describe the
// outer job. The command line wins over a variable.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/options/request.h"
#include "trireme/launch/plan.h"

namespace trireme::launch {

/// Throws UsageError for the first thing that is wrong. Reads no file but --hostfile. `request.nodes` is always set in
/// the result, from --nnodes, the number of hosts, or 1.
/// `command` is named in messages: `trireme doctor` takes the same options.
Request parse_launch(const std::vector<std::string>& args, const Environment& variables,
                     const std::string& command = "trireme launch");

/// Throws UsageError unless `processes` consecutive ports from --start_port, and the one before them, exist. To be
/// called again once the number of processes is known.
void check_ports(const Request& request, int processes);

}  // namespace trireme::launch
