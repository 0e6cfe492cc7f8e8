#include "trireme/core/env.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <unistd.h>

#include <set>
#include <stdexcept>

namespace trireme::env {
namespace {

// The command line wins over every one of them.
std::vector<Variable> launcher_variables() {
  return {
      {"TRIREME_TOKEN_FILE", Use::launcher,
       "File (mode 0600) with the 64 hexadecimal digits that every node of a job must know. Default: "
       "~/.config/trireme/token."},
      {"TRIREME_LOG_MAX_MB", Use::launcher,
       "Size at which a worker's log file is rotated, in MiB (default 256; 0: never)."},
      {"TRIREME_PROGRESS", Use::launcher, "As --progress."},
      {"TRIREME_SSH", Use::launcher, "Command for --ssh instead of \"ssh -o BatchMode=yes -o ConnectTimeout=10\"."},
      {"XDG_CONFIG_HOME", Use::launcher, "Where to look for trireme/token instead of ~/.config."},
      {"HOME", Use::launcher, "Where to look for .config/trireme/token."},
      {"PATH", Use::launcher, "Where PROGRAM is looked for when it has no slash."},
      {"CUDA_VISIBLE_DEVICES", Use::launcher,
       "The GPUs this machine may use: ids or UUIDs; empty or -1 means none. --gpus must choose among them. Workers "
       "get the chosen list."},
      {"FLAGS_START_PORT", Use::launcher, "First port of the workers' endpoints, as --start_port."},
      {"PADDLE_START_PORT", Use::launcher, "As --start_port."},
      {"POD_IP", Use::launcher, "As --host."},
      {"PADDLE_MASTER", Use::launcher, "As --master. Workers get it too: the address of trainer 0's store."},
      {"PADDLE_DEVICES", Use::launcher, "As --devices."},
      {"PADDLE_NNODES", Use::launcher, "As --nnodes. Workers get it too: the number of nodes."},
      {"PADDLE_NPROC_PER_NODE", Use::launcher, "As --nproc_per_node."},
      {"PADDLE_RANK", Use::launcher, "As --rank."},
      {"PADDLE_IPS", Use::launcher, "As --ips."},
      {"PADDLE_JOB_ID", Use::launcher, "As --job_id."},
      {"PADDLE_LOG_DIR", Use::launcher, "As --log_dir. Workers get it too, as an absolute path."},
      {"PADDLE_LOG_LEVEL", Use::launcher, "As --log_level."},
      {"PADDLE_LOG_OVERWRITE", Use::launcher, "As --log_overwrite."},
      {"PADDLE_MAX_RESTART", Use::launcher, "As --max_restart."},
      {"PADDLE_ELASTIC_LEVEL", Use::launcher, "As --elastic_level."},
      {"PADDLE_ELASTIC_TIMEOUT", Use::launcher, "As --elastic_timeout."},
      {"PADDLE_RUN_MODE", Use::launcher, "As --run_mode."},
      {"PET_NNODES", Use::launcher, "As --nnodes; torchrun's variables, which a PyTorchJob (Kubeflow) sets."},
      {"PET_NPROC_PER_NODE", Use::launcher, "As --nproc_per_node."},
      {"PET_NODE_RANK", Use::launcher, "As --rank."},
      {"PET_MASTER_ADDR", Use::launcher, "As --master_addr."},
      {"PET_MASTER_PORT", Use::launcher, "As --master_port."},
      {"PET_RDZV_ENDPOINT", Use::launcher, "As --rdzv_endpoint."},
      {"PET_RDZV_BACKEND", Use::launcher, "As --rdzv_backend."},
      {"PET_MAX_RESTARTS", Use::launcher, "As --max_restart."},
      {"SLURM_STEP_NODELIST", Use::launcher,
       "Set by srun: the first node is where the launchers of a step with several machines meet."},
      {"SLURM_JOB_NODELIST", Use::launcher, "As SLURM_STEP_NODELIST, where that is not set."},
      {"SLURM_JOB_ID", Use::launcher, "Set by Slurm: keeps the meeting ports of jobs apart."},
      {"OMPI_MCA_orte_hnp_uri", Use::launcher,
       "Set by Open MPI's mpirun: where it runs, and so where launchers that it started meet."},
      {"PMIX_NAMESPACE", Use::launcher, "Set by Open MPI's mpirun: keeps the meeting ports of jobs apart."},
      {"JOB_COMPLETION_INDEX", Use::launcher,
       "Set by Kubernetes in a pod of an indexed Job: as --rank, with --nnodes."},
      {"HOSTNAME", Use::launcher, "In a pod of an indexed Job: pod 0, where the launchers meet, is called like it."},
  };
}

std::vector<Variable> program_variables() {
  return {
      {"PADDLE_PG_TIMEOUT", Use::program, "How long a collective may wait, in milliseconds (default 1800000)."},
      {"FLAGS_nccl_nrings", Use::program, "Number of NCCL rings, 1 to 8 (default 1)."},
      {"TRIREME_DATA_DIR", Use::program,
       "Folder with datasets, each in a folder of its own (fashion-mnist); looked into before the system's."},
      {"TRIREME_WEIGHTS", Use::program,
       "Folder with weights by network, ResNet50.safetensors, for `pretrained: True`."},
      {"TRIREME_BACKEND", Use::program,
       "What moves CPU tensors: auto (default: shared memory inside a host, the network between hosts), shm, gloo or "
       "hierarchical."},
      {"TRIREME_LOG_LEVEL", Use::program,
       "The messages that Trireme writes: debug, info (default), warning, error or off. For the launcher as "
       "--log_level; set_log_level() in a program wins."},
      {"TRIREME_CHECK", Use::program,
       "Whether ranks compare their calls before each collective, so that a disagreement is an error that names both "
       "sides instead of a hang or a wrong result. 1 (default): with every backend. 0: only ranks that share memory, "
       "which always do. It must be the same on every node."},
      {"GLOG_v", Use::program,
       "3 or more: every collective of CPU tensors, operator and function of a backward is logged before it runs, with "
       "rank and shapes."},
      {"FLAGS_benchmark", Use::program,
       "1: asynchronous collectives are waited for where they are called, so that with GLOG_v=3 the last line is the "
       "one that hangs."},
      {"TRIREME_SHARED_TENSORS", Use::program,
       "0: large CPU tensors come from malloc, as libtorch allocates them, instead of from memory that is kept for the "
       "next one and that the other ranks of the host can read in place; all_reduce then copies them through buffers."},
      {"TRIREME_CHANNELS_LAST", Use::program,
       "0: networks that take images train in libtorch's usual memory order instead of channels last, in which "
       "convolutions are faster and which the fused passes need."},
      {"FLAGS_cudnn_exhaustive_search", Use::program,
       "0: `trireme train` on a GPU takes the convolutions that cuDNN expects to be fastest, instead of trying all of "
       "them on the first batch of each shape."},
      {"TRIREME_FUSED", Use::program,
       "0: networks train layer by layer, as libtorch's own layers do, instead of by fused passes over the batch (on "
       "the CPU float, on a GPU float, half and bfloat16; channels last)."},
      {"TRIREME_GRAPH", Use::program, "0: no step of training runs as a CUDA graph."},
      {"TRIREME_SIMD", Use::program,
       "avx2, sse or portable: the fused passes use no wider vectors than these (portable: what every processor of the "
       "architecture has). Default: the widest that there are."},
      {"TRIREME_WITHOUT", Use::program,
       "Ways of being fast to go without, separated by commas, to find out which of them a figure or a fault comes "
       "from: blocks (inverted residual blocks train by their fused normalisations, not as one), fused_optimizers (a "
       "step "
       "updates one parameter after the other, by libtorch's own optimizers), streaming_stores (large results go "
       "through the caches), scaled_jpeg (training decodes the pixels of a crop at full size before it shrinks them). "
       "Networks: TRIREME_FUSED switches off blocks and normalisations."},
      {"TRIREME_STRICT", Use::program,
       "1: init_parallel_env() outside of a launcher is an error instead of a world of one."},
      {"TRIREME_PLUGIN_DIR", Use::program,
       "Folder of the plugins libtrireme_mpi.so, libtrireme_openvino.so and libtrireme_torch.so, before ../lib beside "
       "the program and the folder of the installation."},
      {"OMPI_COMM_WORLD_RANK", Use::program, "Set by Open MPI's mpirun: as RANK. The other names of a launcher win."},
      {"OMPI_COMM_WORLD_SIZE", Use::program, "Set by Open MPI's mpirun: as WORLD_SIZE."},
      {"OMPI_COMM_WORLD_LOCAL_RANK", Use::program, "Set by Open MPI's mpirun: as LOCAL_RANK."},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", Use::program, "Set by Open MPI's mpirun: as LOCAL_WORLD_SIZE."},
      {"PMI_RANK", Use::program, "Set by MPICH's and Intel's mpirun: as RANK."},
      {"PMI_SIZE", Use::program, "Set by MPICH's and Intel's mpirun: as WORLD_SIZE."},
      {"MPI_LOCALRANKID", Use::program, "Set by MPICH's and Intel's mpirun: as LOCAL_RANK."},
      {"MPI_LOCALNRANKS", Use::program, "Set by MPICH's and Intel's mpirun: as LOCAL_WORLD_SIZE."},
      {"SLURM_STEP_ID", Use::program, "Set by srun: tells its tasks from the batch script, which is none."},
      {"SLURM_PROCID", Use::program, "Set by srun: as RANK, when neither another launcher nor MPI names one."},
      {"SLURM_STEP_NUM_TASKS", Use::program, "Set by srun: as WORLD_SIZE."},
      {"SLURM_NTASKS", Use::program, "As SLURM_STEP_NUM_TASKS, where that is not set."},
      {"SLURM_LOCALID", Use::program, "Set by srun: as LOCAL_RANK."},
      {"SLURM_STEP_TASKS_PER_NODE", Use::program, "Set by srun: LOCAL_WORLD_SIZE of each node, as in 2(x3),1."},
      {"SLURM_NODEID", Use::program, "Set by srun: as GROUP_RANK."},
      {"SLURM_STEP_NUM_NODES", Use::program, "Set by srun: as GROUP_WORLD_SIZE."},
      {"SLURM_NNODES", Use::program, "As SLURM_STEP_NUM_NODES, where that is not set."},
  };
}

std::vector<Variable> worker_variables() {
  return {
      {"RANK", Use::worker, "Rank of the worker over all nodes."},
      {"WORLD_SIZE", Use::worker, "Number of workers over all nodes."},
      {"LOCAL_RANK", Use::worker, "Rank of the worker on its node; with GPUs, its index into CUDA_VISIBLE_DEVICES."},
      {"LOCAL_WORLD_SIZE", Use::worker, "Number of workers on this node."},
      {"GROUP_RANK", Use::worker, "Rank of the node."},
      {"GROUP_WORLD_SIZE", Use::worker, "Number of nodes."},
      {"ROLE_RANK", Use::worker, "As RANK (torchrun has roles; here all workers have one)."},
      {"ROLE_WORLD_SIZE", Use::worker, "As WORLD_SIZE."},
      {"ROLE_NAME", Use::worker, "Always \"default\"."},
      {"MASTER_ADDR", Use::worker, "Address of node 0."},
      {"MASTER_PORT", Use::worker, "A port of node 0 that is kept free for the program's own store."},
      {"TORCHELASTIC_RESTART_COUNT", Use::worker,
       "How often the job was started again: after a failure, or with other nodes."},
      {"TORCHELASTIC_MAX_RESTARTS", Use::worker, "The value of --max_restart."},
      {"TORCHELASTIC_RUN_ID", Use::worker, "The job id."},
      {"TORCHELASTIC_USE_AGENT_STORE", Use::worker,
       "Always False: PyTorch's rank 0 opens its own store on MASTER_PORT."},
      {"PADDLE_TRAINER_ID", Use::worker, "As RANK."},
      {"PADDLE_TRAINERS_NUM", Use::worker, "As WORLD_SIZE."},
      {"PADDLE_GLOBAL_RANK", Use::worker, "As RANK."},
      {"PADDLE_GLOBAL_SIZE", Use::worker, "As WORLD_SIZE."},
      {"PADDLE_LOCAL_RANK", Use::worker, "As LOCAL_RANK."},
      {"PADDLE_LOCAL_SIZE", Use::worker, "As LOCAL_WORLD_SIZE."},
      {"PADDLE_RANK_IN_NODE", Use::worker, "As LOCAL_RANK."},
      {"PADDLE_CURRENT_ENDPOINT", Use::worker, "This worker's own address:port."},
      {"PADDLE_TRAINER_ENDPOINTS", Use::worker,
       "Every worker's address:port in rank order; left out above 48000 characters."},
      {"PADDLE_AUTO_CLUSTER", Use::worker, "Always 0."},
      {"PADDLE_BACKUP_ENV_PATH", Use::worker,
       "The file backup_env.<rank>.json in the log folder: this worker's variables as JSON."},
      {"PADDLE_DISTRI_BACKEND", Use::worker,
       "gloo, on workers without a GPU: for Paddle's own programs. Trireme's go by TRIREME_BACKEND."},
      {"POD_NAME", Use::worker,
       "Six letters that name this node's part of the job, the same for the same job id and node."},
      {"FLAGS_selected_gpus", Use::worker, "Index of the worker's GPU in CUDA_VISIBLE_DEVICES; only with GPUs."},
      {"GLOO_SOCKET_IFNAME", Use::worker, "The network interface between the nodes, unless set already."},
      {"NCCL_SOCKET_IFNAME", Use::worker, "The network interface between the nodes, unless set already."},
      {"OMP_NUM_THREADS", Use::worker, "Cores divided by local workers, unless set already."},
      {"ONEDNN_MAX_CPU_ISA", Use::worker, "Set on a CPU that announces AMX but cannot run it, unless set already."},
      {"TRIREME_JOB_ID", Use::worker, "The job id. Its presence tells a program that `trireme launch` started it."},
      {"TRIREME_STORE", Use::worker, "host:port of the job's key-value store."},
      {"TRIREME_LINK_TIMEOUT", Use::worker, "--link_timeout, in milliseconds."},
      {"TRIREME_TOKEN_FD", Use::worker, "Descriptor from which the worker reads the job's token."},
      {"TRIREME_LISTEN_FD", Use::worker,
       "Descriptor of a socket bound to PADDLE_CURRENT_ENDPOINT, ready for listen(2)."},
      {"TRIREME_WATCH_FD", Use::worker,
       "Descriptor of the memory in which the worker records its collectives, for the launcher (see --hang_timeout)."},
      {"TRIREME_SPAWN", Use::worker,
       "Set in children of spawn(): which call made them, and their private descriptors."},
  };
}

bool is_listed(std::string_view name) {
  static const std::set<std::string_view> names = [] {
    std::set<std::string_view> all;
    for (const Variable& variable : variables()) all.insert(variable.name);
    return all;
  }();
  return names.contains(name);
}

}  // namespace

const std::vector<Variable>& variables() {
  static const std::vector<Variable> table = [] {
    std::vector<Variable> all = launcher_variables();
    for (const auto& part : {program_variables(), worker_variables()}) all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return table;
}

std::optional<std::string> get(std::string_view name) {
  if (!is_listed(name))
    throw std::logic_error(fmt::format("environment variable {} is not in the table of env.cc", name));
  const char* value = ::getenv(std::string(name).c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> get_nonempty(std::string_view name) {
  auto value = get(name);
  return value && !value->empty() ? value : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> all() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

void set(const std::string& name, const std::optional<std::string>& value) {
  if (value)
    ::setenv(name.c_str(), value->c_str(), 1);
  else
    ::unsetenv(name.c_str());
}

}  // namespace trireme::env
