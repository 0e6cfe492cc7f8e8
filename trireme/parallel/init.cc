#include "trireme/parallel/init.h"

#include <torch/torch.h>

#include <cstdlib>
#include <mutex>

#include "trireme/comm/backends/gloo.h"
#include "trireme/comm/backends/nccl.h"
#include "trireme/comm/collective_count.h"
#include "trireme/comm/foreign_store.h"
#include "trireme/comm/group_state.h"
#include "trireme/comm/operator_log.h"
#include "trireme/comm/shared_tensors.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/parallel/backward_watch.h"
#include "trireme/parallel/wrapped_module.h"
#include "trireme/store/job.h"

namespace trireme {

struct World::State {
  Job job;
  c10::Device device = torch::kCPU;
};

namespace {

Mutex g_mutex;
std::optional<World> g_world TRIREME_GUARDED_BY(g_mutex);
int g_worlds TRIREME_GUARDED_BY(g_mutex) = 0;  // how many this process has made

bool is_mpi(const ParallelEnv& env) {
  return env.launcher == "mpi" || env.launcher == "slurm";
}

c10::Device choose_device(const ParallelEnv& env) {
  if (!comm::is_gpu_wanted()) return torch::kCPU;
  if (const auto problem = comm::why_no_cuda()) {
    if (env.device_type == "gpu")
      throw UsageError(
          "rank {} was given GPU {}, but: {}; to train on the CPU: CUDA_VISIBLE_DEVICES=-1 trireme launch …", env.rank,
          env.device_id, *problem);
    log_warning("there is a GPU, but it is not used: {}", *problem);
    return torch::kCPU;
  }
  const int count = static_cast<int>(torch::cuda::device_count());
  if (env.device_id >= count && env.device_type == "gpu")
    throw UsageError("rank {} was given GPU {}, but libtorch sees {}", env.rank, env.device_id, count);
  const int index = env.device_id % count;
  log_info("rank {}: {}", env.rank, comm::describe_gpu(index));
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

// The address by which the other hosts know this one.
std::string own_address(const ParallelEnv& env) {
  if (!env.current_endpoint.empty()) return parse_endpoint(env.current_endpoint, "PADDLE_CURRENT_ENDPOINT").host;
  if (env.node_count == 1) return "127.0.0.1";
  return env.master ? source_ip_towards(env.master->host) : "";
}

constexpr int kLogCalls = 3;  // GLOG_v: collectives and operators

bool compares_calls(const InitOptions& options) {
  if (options.check) return *options.check;
  const std::string text = env::get_nonempty("TRIREME_CHECK").value_or("1");
  if (text != "0" && text != "1")
    throw UsageError("TRIREME_CHECK={}: must be 1 (compare, as without it) or 0 (never)", text);
  return text == "1";
}

comm::ContextOptions context_options(const World::State& state, const InitOptions& options, int world_number) {
  const ParallelEnv& env = state.job.env;
  comm::ContextOptions result;
  result.world = env;
  result.store = state.job.store;
  result.prefix = fmt::format("comm/{}.{}/", env.restart_count, world_number);
  result.address = own_address(env);
  result.backend = options.backend.empty() ? env::get_nonempty("TRIREME_BACKEND").value_or("auto") : options.backend;
  result.timeout = options.timeout.value_or(env.pg_timeout);
  result.compare_calls = compares_calls(options);
  result.log_calls = parse_int(env::get("GLOG_v").value_or(""), 0, 1'000'000).value_or(0) >= kLogCalls;
  result.wait_at_once = env::get("FLAGS_benchmark") == "1";
  result.mpi = is_mpi(env);
  if (env::get_nonempty("TRIREME_STORE")) result.attempt = env.restart_count;
  if (state.device.is_cuda()) {
    result.gpu_index = state.device.index();
    result.gpu = comm::gpu_identity(state.device.index());
  }
  return result;
}

void log_start(const World& world, const comm::ContextOptions& options) {
  if (world.rank() != 0 || world.size() == 1) return;
  const bool network = world.backend() == "gloo" || world.backend() == "hierarchical";
  log_info("{} ranks, backend {}{}{}", world.size(), world.backend(),
           network ? " over " + comm::describe_gloo_interface(options.address) : "",
           world.device().is_cuda() ? ", CUDA tensors by " + world.cuda_backend() : "");
}

// Before the ranks meet: they tell each other where their tensors lie.
void share_tensors(const World::State& state, const comm::ContextOptions& options) {
  const ParallelEnv& env = state.job.env;
  const bool by_memory = env.local_world_size == 1 || (options.backend != "gloo" && !options.mpi);
  if (by_memory && state.device.is_cpu() && env::get("TRIREME_SHARED_TENSORS") != "0")
    comm::share_large_tensors(env.local_world_size);
}

World make_world(const InitOptions& options, int number) {
  auto state = std::make_shared<World::State>();
  state->job = connect_job({.strict = options.strict, .timeout_seconds = options.timeout_seconds});
  if (!state->job.store && !is_mpi(state->job.env))
    state->job.store = comm::connect_foreign_store(state->job.env, std::chrono::seconds(options.timeout_seconds));
  state->device = choose_device(state->job.env);
  const comm::ContextOptions context = context_options(*state, options, number);
  share_tensors(*state, context);
  if (context.log_calls) comm::log_operators(context.world.rank);
  World world(make_world_group(comm::Context::meet(context)), state);
  log_start(world, context);
  return world;
}

constexpr int64_t kFewBackwards = 10;  // what a program may do for itself

constexpr int64_t kManyBackwards = 100;  // for each collective: more than a program adds up that averages by itself

// The launcher sees ranks that never join; these have joined, and then forgotten each other.
void warn_if_nothing_was_averaged(const World& world) {
  const int64_t backwards = parallel::backwards_begun();
  if (world.size() == 1 || world.rank() != 0 || parallel::averaged_backwards() > 0) return;
  if (backwards < kFewBackwards || comm::collectives_begun() * kManyBackwards >= backwards) return;
  log_warning(
      "none of the {} calls of backward() on rank 0 was averaged over the {} ranks; if they train one model, each has "
      "trained alone: give the world to DataParallel",
      backwards, world.size());
}

}  // namespace

const ParallelEnv& World::env() const {
  return state_->job.env;
}
std::shared_ptr<Store> World::store() const {
  return state_->job.store;
}
c10::Device World::device() const {
  return state_->device;
}

World init_parallel_env(const InitOptions& options) {
  const std::lock_guard lock(g_mutex);
  if (!g_world) {
    g_world = make_world(options, g_worlds++);
    // Before the libraries that the groups use, which were loaded earlier.
    static const int registered = std::atexit(destroy_parallel_env);
    static_cast<void>(registered);
  }
  return *g_world;
}

bool is_initialized() {
  const std::lock_guard lock(g_mutex);
  return g_world.has_value();
}

std::string get_backend(const Group& group) {
  return group.state().cuda ? group.cuda_backend() : group.backend();
}

void destroy_parallel_env() {
  std::optional<World> last;  // ends outside of the lock
  const std::lock_guard lock(g_mutex);
  last.swap(g_world);
  if (last) warn_if_nothing_was_averaged(*last);
  forget_world_group();
}

}  // namespace trireme
