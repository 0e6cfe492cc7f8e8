#include "trireme/launch/options/option_table.h"

#include "trireme/core/error.h"
#include "trireme/launch/options/hostfile.h"

namespace trireme::launch {
namespace {

using Apply = std::function<void(Draft&, const Given&)>;

// An apply function that stores one field of the request.
template <typename Field, typename Read>
Apply into(Field Request::*field, Read read) {
  return [=](Draft& draft, const Given& given) { draft.request.*field = read(given); };
}

Apply flag_into(bool Request::*field) {
  return into(field, bool_value);
}

auto int_from(int64_t low, int64_t high) {
  return [=](const Given& given) { return int_value(given, low, high); };
}

void set_master(Draft& draft, const Given& given) {
  constexpr std::string_view kEtcd = "etcd://";
  const std::string_view text = given.text;
  draft.request.master.reset();
  draft.request.etcd.reset();
  if (text.starts_with(kEtcd))
    draft.request.etcd = parse_endpoint(text.substr(kEtcd.size()), given.source, kEtcdPort);
  else if (text.find("://") != std::string_view::npos)
    throw UsageError("{}: must be host:port or etcd://host:port", given.shown());
  else
    draft.request.master = parse_endpoint(text, given.source);
}

void set_hosts(Draft& draft, std::vector<HostSlots> hosts, const Given& given) {
  for (const HostSlots& host : hosts)
    if (hosts.size() > 1 && is_loopback(host.host))
      throw UsageError("{}: {} means another machine on each machine; write the address by which the others reach it",
                       given.shown(), host.host);
  draft.request.hosts = std::move(hosts);
}

void read_hosts(Draft& draft, const Given& given) {
  set_hosts(draft, read_hostfile(text_value(given)), given);
}

void parse_hosts(Draft& draft, const Given& given) {
  set_hosts(draft, parse_host_slots(given.text, given.shown()), given);
}

void set_log_level_of_request(Draft& draft, const Given& given) {
  try {
    draft.request.log_level = parse_log_level(given.text);
  } catch (const UsageError&) {
    throw UsageError("{}: must be debug, info, warning, error or off", given.shown());
  }
}

// What --log_level has said before is overruled, and a variable is not asked.
void set_quiet(Draft& draft, const Given& given) {
  if (!bool_value(given)) return;
  draft.request.log_level = LogLevel::error;
  draft.given["--log_level"] = given;
}

void add_variable(Draft& draft, const Given& given) {
  draft.request.environment.push_back(variable_value(given));
}

void add_wrap(Draft& draft, const Given& given) {
  const auto [rank, command] = wrap_value(given);
  if (!draft.request.wrap.emplace(rank, command).second)
    throw UsageError("{}: rank {} is wrapped already; put both commands into one", given.shown(), rank);
}

void set_nodes(Draft& draft, const Given& given) {
  const auto [min, max] = nodes_value(given);
  draft.request.nodes = max;
  draft.request.min_nodes = min < max ? min : 0;
}

void check_run_mode(Draft&, const Given& given) {
  if (given.text == "collective") return;
  if (given.text == "ps" || given.text == "ps-heter" || given.text == "rpc")
    throw UsageError("{}: not supported, because Trireme trains with collectives only; use --run_mode collective",
                     given.shown());
  throw UsageError("{}: must be collective", given.shown());
}

void set_rdzv_backend(Draft& draft, const Given& given) {
  for (const char* known : {"c10d", "static", "etcd", "etcd-v2"})
    if (given.text == known) draft.rdzv_backend = known;
  if (draft.rdzv_backend != given.text)  // nothing above matched
    throw UsageError("{}: must be c10d or static (nodes meet at --rdzv_endpoint), or etcd", given.shown());
}

// One line of the table.
struct Row : Option {
  Row(std::vector<std::string> names_, std::string value_, std::string help_, Apply apply_) {
    names = std::move(names_);
    value = std::move(value_);
    help = std::move(help_);
    apply = std::move(apply_);
    if (value.empty()) takes = Takes::nothing;
  }
  Row from(std::vector<std::string> names_of_variables) && {
    variables = std::move(names_of_variables);
    return std::move(*this);
  }
  Row taking(Takes what) && {
    takes = what;
    return std::move(*this);
  }
  Row as(Role what) && {
    role = what;
    return std::move(*this);
  }
  Row but(Support what) && {
    support = what;
    return std::move(*this);
  }
};

std::vector<Option> section(Topic topic, std::initializer_list<Row> rows) {
  std::vector<Option> options(rows.begin(), rows.end());
  for (Option& option : options) option.topic = topic;
  return options;
}

std::vector<Option> process_options() {
  return section(
      Topic::processes,
      {Row({"--nproc_per_node", "-n"}, "N|gpu|cpu", "processes on each node (default: one per visible GPU, else 1)",
           into(&Request::processes, processes_value))
           .from({"PADDLE_NPROC_PER_NODE", "PET_NPROC_PER_NODE"}),
       Row({"--gpus", "--devices"}, "LIST",
           "GPUs to use, like 0,1: absolute ids or UUIDs that are visible here (default: all visible)",
           into(&Request::devices, devices_value))
           .from({"PADDLE_DEVICES"}),
       Row({"--bind"}, "none|core|numa",
           "tie each process to its share of the cores, or to a NUMA node (default: none)",
           into(&Request::bind, bind_value)),
       Row({"--env"}, "NAME=VALUE", "set a variable in every worker; may be repeated", add_variable)});
}

std::vector<Option> node_options() {
  return section(
      Topic::nodes,
      {Row({"--nnodes"}, "N|MIN:MAX",
           "number of machines, which may change from MIN to MAX (default: 1, or the number of hosts given)", set_nodes)
           .from({"PADDLE_NNODES", "PET_NNODES"})
           .as(Role::cluster_shape),
       Row({"--ips"}, "LIST", "every machine, like 10.0.0.1,10.0.0.2, the same on each; trainer 0 is on the first",
           [](Draft& draft, const Given& given) { set_hosts(draft, ips_value(given), given); })
           .from({"PADDLE_IPS"})
           .as(Role::meeting_place),
       Row({"--master"}, "HOST:PORT", "where --nnodes machines meet: a port of one of them, or etcd://HOST:PORT",
           set_master)
           .from({"PADDLE_MASTER"})
           .as(Role::meeting_place),
       Row({"--rank", "--node_rank"}, "N", "number of this machine, from 0 (default: found by itself)",
           into(&Request::node_rank, int_from(-1, 65535)))
           .from({"PADDLE_RANK", "PET_NODE_RANK"})
           .as(Role::cluster_shape),
       Row({"--host", "--local_addr"}, "ADDRESS",
           "address by which the other machines reach this one (default: found by itself)",
           into(&Request::host, [](const Given& given) { return parse_host(given.text, given.shown()); }))
           .from({"POD_IP"}),
       Row({"--hostfile"}, "FILE", "machines as lines `host slots=N`; they may have unequal slots", read_hosts)
           .as(Role::meeting_place),
       Row({"--hosts", "-H"}, "A:N,B:N", "the same on the command line, as Horovod writes it", parse_hosts)
           .as(Role::meeting_place),
       Row({"--ssh"}, "", "start all machines of --ips, --hostfile or -H from this terminal", flag_into(&Request::ssh)),
       Row({"--start_port"}, "PORT",
           "first port of the workers, one each; machines meet on the one before it (default: free ports, 6069)",
           into(&Request::start_port, [](const Given& given) { return port_value(given, 2); }))
           .from({"PADDLE_START_PORT", "FLAGS_START_PORT"}),
       Row({"--job_id", "--rdzv_id"}, "NAME", "keeps jobs on the same machines apart (default: default)",
           into(&Request::job_id, job_id_value))
           .from({"PADDLE_JOB_ID"}),
       Row({"--join_timeout"}, "TIME", "how long to wait for the other machines (default: 600s)",
           into(&Request::join_timeout, duration_value))});
}

std::vector<Option> log_options() {
  return section(
      Topic::logs,
      {Row({"--log_dir"}, "FOLDER", "where workerlog.<local rank> and result.json go (default: log)",
           into(&Request::log_dir, text_value))
           .from({"PADDLE_LOG_DIR"}),
       Row({"--tee", "--local_ranks_filter"}, "all|none|LIST",
           "local ranks whose output the console shows too (default: 0)",
           [](Draft& draft, const Given& given) { set_tee(given, draft.request); }),
       Row({"--log_overwrite"}, "", "overwrite the workers' logs instead of appending",
           flag_into(&Request::log_overwrite))
           .from({"PADDLE_LOG_OVERWRITE"})
           .taking(Takes::boolean),
       Row({"--log_level"}, "LEVEL", "the launcher's own messages: debug, info, warning, error or off (default: info)",
           set_log_level_of_request)
           .from({"TRIREME_LOG_LEVEL", "PADDLE_LOG_LEVEL"}),
       Row({"--progress"}, "auto|on|off",
           "show how far the job is. auto: one line on a terminal, not with --quiet; on: also elsewhere, a line every "
           "10 s (default: auto)",
           into(&Request::progress, progress_value))
           .from({"TRIREME_PROGRESS"}),
       Row({"--quiet"}, "", "as --log_level error: no table at the start, nothing unless the job fails", set_quiet)});
}

std::vector<Option> page_options() {
  return section(
      Topic::logs,
      {Row({"--dashboard"}, "[HOST:]PORT",
           "show the running job on a web page of node 0; on other hosts than this machine it asks for a token",
           into(&Request::dashboard, page_address_value)),
       Row({"--trace"}, "steps=A:B", "write what all ranks do in the steps from A on, before B, to trace.json",
           into(&Request::trace, [](const Given& given) { return parse_step_range(given.text, given.shown()); }))});
}

std::vector<Option> failure_options() {
  return section(
      Topic::failure,
      {Row({"--max_restart", "--max_restarts"}, "N",
           "restart the job up to N times from its last checkpoint (default: 0)",
           into(&Request::max_restart, int_from(0, 1'000'000)))
           .from({"PADDLE_MAX_RESTART", "PET_MAX_RESTARTS"}),
       Row({"--grace"}, "TIME", "between SIGTERM and SIGKILL, to save a checkpoint (default: 10s)",
           into(&Request::grace, duration_value)),
       Row({"--link_timeout"}, "TIME", "silence after which another machine counts as lost (default: 8s; from 1s)",
           into(&Request::link_timeout, link_timeout_value)),
       Row({"--hang_timeout"}, "TIME",
           "when ranks have waited so long in a collective, or none has moved, say why, and end the job if it cannot "
           "go on (default: 60s; 0: off)",
           into(&Request::hang_timeout, duration_value)),
       Row({"--elastic_level"}, "-1|0|1",
           "-1: the loss of a machine ends the job; 0: a machine whose process fails leaves, the others go on; 1: the "
           "job restarts on all (default: 1 with MIN:MAX or --max_restart, else -1)",
           [](Draft& draft, const Given& given) { draft.request.elastic_level = elastic_level_value(given); })
           .from({"PADDLE_ELASTIC_LEVEL"}),
       Row({"--elastic_timeout"}, "TIME",
           "how long an elastic job waits for more machines, or for one in place of a lost one (default: 30s)",
           into(&Request::elastic_timeout, duration_value))
           .from({"PADDLE_ELASTIC_TIMEOUT"})});
}

std::vector<Option> debug_options() {
  return section(
      Topic::debug,
      {Row({"--dry_run"}, "", "print the plan (rank, node, device, endpoint, environment) and start nothing",
           flag_into(&Request::dry_run)),
       Row({"--wrap"}, "RANK:CMD",
           "run one rank under a tool, like '0:gdb --args' (it gets the terminal); may be repeated", add_wrap),
       Row({"--help", "-h"}, "[TOPIC]", "the overview, or one topic", [](Draft&, const Given&) {})});
}

std::vector<Option> internal_options() {
  return section(
      Topic::internal,
      {Row({"--check_only"}, "", "`trireme doctor`: meet, measure the way between the machines, start nothing",
           flag_into(&Request::check_only)),
       Row({"--ssh_child"}, "", "started by another launcher's --ssh: the job's token comes on standard input",
           flag_into(&Request::ssh_child))});
}

std::vector<Option> peer_options() {
  return section(
      Topic::compat,
      {Row({"--num_proc", "-np"}, "N", "Horovod: processes of the whole job, filled into -H in order",
           [](Draft& draft, const Given& given) { draft.total = int_value(given, 1, 1'000'000'000); }),
       Row({"--rdzv_endpoint"}, "HOST:PORT", "torchrun: as --master",
           [](Draft& draft, const Given& given) { draft.rdzv_endpoint = given.text; })
           .from({"PET_RDZV_ENDPOINT"})
           .as(Role::meeting_place),
       Row({"--rdzv_backend"}, "NAME", "torchrun: c10d and static are one here; etcd as --master etcd://",
           set_rdzv_backend)
           .from({"PET_RDZV_BACKEND"}),
       Row({"--master_addr"}, "HOST", "torchrun: host of --master (default: 127.0.0.1)",
           [](Draft& draft, const Given& given) { draft.master_addr = parse_host(given.text, given.shown()); })
           .from({"PET_MASTER_ADDR"})
           .as(Role::meeting_place),
       Row({"--master_port"}, "PORT", "torchrun: port of --master (default: 29500)",
           [](Draft& draft, const Given& given) { draft.master_port = port_value(given); })
           .from({"PET_MASTER_PORT"}),
       Row({"--standalone"}, "", "torchrun: this machine alone, whatever the variables say",
           [](Draft& draft, const Given& given) { draft.standalone = bool_value(given); }),
       Row({"--no_python"}, "", "torchrun: execute a *.py file itself instead of giving it to python3",
           flag_into(&Request::no_python)),
       Row({"--run_mode"}, "collective", "Paddle: the only mode here", check_run_mode).from({"PADDLE_RUN_MODE"})});
}

Row ignored(std::vector<std::string> names, const std::string& why) {
  const auto note = [why](Draft& draft, const Given& given) {
    draft.notices.emplace_back(LogLevel::info, fmt::format("[launch] {} is ignored: {}", given.source, why));
  };
  return Row(std::move(names), "VALUE", why, note).but(Support::ignored);
}

Row refused(std::vector<std::string> names, const std::string& why) {
  const auto refuse = [why](Draft&, const Given& given) {
    throw UsageError("{} is not supported, because {}", given.source, why);
  };
  return Row(std::move(names), "", why, refuse).but(Support::refused);
}

std::vector<Option> ignored_options() {
  return section(Topic::compat,
                 {ignored({"--start_method"}, "workers are always fresh programs"),
                  ignored({"--monitor_interval"}, "workers are watched without polling"),
                  ignored({"--redirects", "-r"}, "every rank has its log file in --log_dir; --tee chooses the console"),
                  ignored({"--rdzv_conf"}, "use --join_timeout for the time that nodes wait for each other"),
                  ignored({"--enable_gpu_log"}, "the launcher does not sample nvidia-smi").taking(Takes::boolean),
                  ignored({"--sort_ip"}, "nodes are ordered by --ips or --rank").taking(Takes::boolean)});
}

std::vector<Option> refused_options() {
  return section(
      Topic::compat,
      {refused({"--servers", "--trainers", "--trainer_num", "--server_num", "--gloo_port", "--with_gloo"},
               "Trireme trains with collectives and has no parameter servers; use -n and --nnodes instead"),
       refused({"--auto_parallel_config", "--auto_cluster_config", "--auto_tuner_json"},
               "the program says how a model is split, not the launcher; leave it out"),
       refused({"--legacy"}, "there is one launcher; leave it out"),
       refused({"--xpus", "--npus"}, "Trireme knows NVIDIA GPUs and CPUs; use --gpus, or -n for the CPU"),
       refused({"--role"}, "all workers have the same role; leave it out"),
       refused({"--module", "-m"}, "PROGRAM is an executable; write: trireme launch [options] python3 -m MODULE"),
       refused({"--run_path"}, "PROGRAM is an executable; write: trireme launch [options] python3 SCRIPT")});
}

std::vector<Option> make_table() {
  std::vector<Option> table;
  for (auto part : {process_options, node_options, log_options, page_options, failure_options, debug_options,
                    internal_options, peer_options, ignored_options, refused_options})
    for (const Option& option : part()) table.push_back(option);
  return table;
}

}  // namespace

const std::vector<Option>& option_table() {
  static const std::vector<Option> table = make_table();
  return table;
}

const Option* find_option(std::string_view name) {
  for (const Option& option : option_table())
    if (option.has_name(name)) return &option;
  return nullptr;
}

}  // namespace trireme::launch
