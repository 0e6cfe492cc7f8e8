// What the user asked for: the command line (and the PADDLE_* variables) as plain values, checked as far as one can
// without looking at the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/log.h"
#include "trireme/core/net.h"
#include "trireme/launch/live/step_range.h"

namespace trireme::launch {

inline constexpr uint16_t kEtcdPort = 2379;  // where etcd listens unless told otherwise

/// On one machine: each process needs a port of its own.
inline constexpr int kMaxProcesses = 65536;

enum class Bind { none, core, numa };

/// The line that says how far the job is. automatic: on a terminal, unless --quiet.
enum class Progress { automatic, on, off };

/// One part of `--ips` or `-H host:slots`, or one line of a hostfile.
struct HostSlots {
  std::string host;
  int slots = 0;  // 0: --nproc_per_node, or as many as the machine has devices
};

struct Request {
  std::vector<std::string> command = {};       // PROGRAM and its arguments, untouched
  std::optional<std::string> help_topic = {};  // --help [TOPIC]: show launch_help() of it; nothing else was checked

  // how many processes, where
  std::optional<std::vector<std::string>> devices = {};  // --gpus: absolute ids as written
  std::string devices_name = "--gpus";                   // what messages call them
  std::optional<std::string> processes = {};             // --nproc_per_node: a number, "gpu", "cpu" or "auto"
  std::optional<int> nodes = {};                         // --nnodes: N or MAX; parse_launch() always sets it
  int min_nodes = 0;                                     // --nnodes MIN:MAX; 0: as many as `nodes`
  std::vector<HostSlots> hosts = {};                     // --ips, --hostfile, -H
  std::optional<Endpoint> master = {};                   // --master host:port
  std::optional<Endpoint> etcd = {};                     // --master etcd://host:port
  int node_rank = -1;                                    // --rank
  std::optional<std::string> host = {};                  // --host: this node's address
  std::optional<uint16_t> start_port = {};               // --start_port, FLAGS_START_PORT, PADDLE_START_PORT
  bool ssh = false;                                      // --ssh
  bool ssh_child = false;                                // --ssh_child: started by another launcher's --ssh
  Bind bind = Bind::none;                                // --bind

  // names and places
  std::string job_id = "default";
  std::string log_dir = "log";
  std::optional<Endpoint> dashboard = {};  // --dashboard: where node 0 serves its page
  std::optional<StepRange> trace = {};     // --trace
  LogLevel log_level = LogLevel::info;
  Progress progress = Progress::automatic;  // --progress
  bool log_overwrite = false;

  // --tee: the local ranks whose output the console shows
  std::vector<int> tee{0};
  bool tee_all = false;

  // time
  std::chrono::milliseconds grace{10'000};
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds link_timeout = kLinkTimeout;
  std::chrono::milliseconds hang_timeout{60'000};  // 0: ranks are not watched
  std::chrono::milliseconds elastic_timeout{30'000};
  int max_restart = 0;
  std::optional<int> elastic_level = {};  // --elastic_level

  std::vector<std::pair<std::string, std::string>> environment = {};  // --env
  std::map<int, std::string> wrap = {};                               // --wrap RANK:CMD
  bool dry_run = false;
  bool check_only = false;  // --check_only: meet, measure the way between the nodes, start nothing
  bool no_python = false;   // --no-python: *.py is executed as it is

  int fewest_nodes() const { return min_nodes > 0 ? min_nodes : nodes.value_or(1); }
  /// "3", or "2:4" as --nnodes writes it.
  std::string nodes_text() const;
};

}  // namespace trireme::launch
