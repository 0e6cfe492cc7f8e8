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

namespace trireme::launch {

inline constexpr uint16_t kEtcdPort = 2379;  // where etcd listens unless told otherwise

enum class Bind { none, core, numa };

/// `--nnodes 2` is {2, 2}; `--nnodes 2:4` is {2, 4}.
struct NodeRange {
  int min = 1;
  int max = 1;
};

/// One line of a hostfile, or one part of `-H host:slots`.
struct HostSlots {
  std::string host;
  int slots = 0;  // 0: as many as the machine has devices
};

struct Request {
  std::vector<std::string> command;       // PROGRAM and its arguments, untouched
  std::optional<std::string> help_topic;  // --help [TOPIC]: show launch_help() of it; nothing else was checked

  // how many processes, where
  std::optional<std::vector<std::string>> devices;  // --gpus: absolute ids as written
  std::optional<std::string> processes;             // --nproc_per_node: a number, "gpu", "cpu" or "auto"
  std::optional<NodeRange> nodes;                   // --nnodes; parse_launch() always sets it
  std::vector<std::string> ips;                     // --ips
  std::vector<HostSlots> hosts;                     // --hostfile, -H
  std::optional<Endpoint> master;                   // --master host:port
  std::optional<Endpoint> etcd;                     // --master etcd://host:port
  int node_rank = -1;                               // --rank
  std::optional<std::string> host;                  // --host: this node's address
  std::optional<uint16_t> start_port;               // --start_port, FLAGS_START_PORT, PADDLE_START_PORT
  bool ssh = false;                                 // --ssh
  bool ssh_child = false;                           // --ssh_child: started by another launcher's --ssh
  Bind bind = Bind::none;                           // --bind

  // names and places
  std::string job_id = "default";
  std::string log_dir = "log";
  LogLevel log_level = LogLevel::info;
  bool log_overwrite = false;

  // what the console shows: local ranks; nothing = rank 0, "all" is kTeeAll
  std::vector<int> tee{0};
  bool tee_all = false;

  // time
  std::chrono::milliseconds grace{10'000};
  std::chrono::milliseconds join_timeout{600'000};
  int max_restart = 0;
  int elastic_level = -1;

  std::vector<std::pair<std::string, std::string>> environment;  // --env
  std::map<int, std::string> wrap;                               // --wrap RANK:CMD
  bool dry_run = false;
  bool check_only = false;  // --check_only: meet, measure the way between the nodes, start nothing
  bool no_python = false;   // --no-python: *.py is executed as it is
};

}  // namespace trireme::launch
