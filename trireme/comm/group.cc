#include "trireme/comm/group.h"

#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>

#include "trireme/comm/backends/nccl.h"
#include "trireme/comm/group_state.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/core/thread_annotations.h"

namespace trireme {
namespace {

Mutex g_mutex;
Group g_world TRIREME_GUARDED_BY(g_mutex);

// NCCL needs a GPU for each rank. Where ranks share one, or have none, CUDA tensors go through the CPU.
c10::intrusive_ptr<c10d::Backend> make_cuda_backend(const comm::Context& context, const Group::State& state) {
  const comm::ContextOptions& options = context.options();
  if (options.gpu_index < 0 || options.mpi) return nullptr;
  std::set<std::string> gpus;
  for (const int rank : state.ranks)
    gpus.insert(state.ranks.size() == 1 ? options.gpu : context.cards()[static_cast<size_t>(rank)].gpu);
  if (gpus.contains("")) return nullptr;
  if (gpus.size() < state.ranks.size()) {
    static std::once_flag said;
    if (state.rank == 0)
      std::call_once(said, [&] {
        log_warning(
            "{} ranks share {} GPU{}: nccl cannot, so CUDA tensors are staged through the CPU (slow; for tests)",
            state.ranks.size(), gpus.size(), gpus.size() == 1 ? "" : "s");
      });
    return nullptr;
  }
  return comm::make_nccl_backend({.store = options.store,
                                  .prefix = options.prefix + state.name + "/nccl/",
                                  .me = {state.rank, static_cast<int>(state.ranks.size())},
                                  .device = options.gpu_index,
                                  .timeout = options.timeout});
}

void set_backends(Group::State& state) {
  using Type = c10d::ProcessGroup::BackendType;
  state.process_group = c10::make_intrusive<c10d::ProcessGroup>(state.rank, static_cast<int>(state.ranks.size()));
  state.process_group->setBackend(torch::kCPU, Type::CUSTOM, state.cpu);
  if (state.cuda)
    state.process_group->setBackend(torch::kCUDA, Type::NCCL, state.cuda);
  else
    state.process_group->setBackend(torch::kCUDA, Type::CUSTOM, state.cpu);
  state.process_group->setDefaultBackend(Type::CUSTOM);
  state.process_group->setGroupName(state.name);
}

Group make_group(const std::shared_ptr<comm::Context>& context, std::vector<int> ranks, const char* operation,
                 const std::string& axis = "") {
  const auto me = std::find(ranks.begin(), ranks.end(), context->options().world.rank);
  if (me == ranks.end()) return {};
  auto state = std::make_shared<Group::State>();
  state->context = context;
  state->rank = static_cast<int>(me - ranks.begin());
  state->axis = axis;
  state->name = context->name_group(ranks);
  state->ranks = std::move(ranks);
  using Asynchrony = comm::EngineBackend::Asynchrony;
  state->cpu = c10::make_intrusive<comm::EngineBackend>(
      context->make_engine(state->name, state->ranks, operation),
      context->options().wait_at_once ? Asynchrony::messages_only : Asynchrony::allowed);
  state->cuda = make_cuda_backend(*context, *state);
  set_backends(*state);
  return Group(state);
}

std::vector<int> world_ranks(const std::vector<int>& of_group, const std::vector<int>& wanted) {
  std::vector<int> ranks;
  for (const int rank : wanted) {
    if (rank < 0 || rank >= static_cast<int>(of_group.size()))
      throw UsageError("new_group: rank {} of a group of {}", rank, of_group.size());
    if (std::count(wanted.begin(), wanted.end(), rank) != 1) throw UsageError("new_group: rank {} twice", rank);
    ranks.push_back(of_group[static_cast<size_t>(rank)]);
  }
  if (ranks.empty()) throw UsageError("new_group: no ranks");
  return ranks;
}

}  // namespace

Group::State::~State() {
  if (!cuda) return;
  try {
    cuda->shutdown();
  } catch (const std::exception& error) {
    log_warning("the nccl group {} did not end in order: {}", name, error.what());
  }
}

c10d::Backend& Group::State::backend_for(const c10::Device& device) const {
  if (device.is_cuda() && cuda) return *cuda;
  if (device.is_cuda() || device.is_cpu()) return *cpu;
  throw UsageError("a tensor on {}: only CPU and CUDA tensors can be communicated", device.str());
}

Group make_world_group(const std::shared_ptr<comm::Context>& context) {
  std::vector<int> ranks(static_cast<size_t>(context->options().world.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Group world = make_group(context, std::move(ranks), "init_parallel_env");
  const std::lock_guard lock(g_mutex);
  g_world = world;
  return world;
}

void forget_world_group() {
  Group last;  // ends outside of the lock
  const std::lock_guard lock(g_mutex);
  std::swap(last, g_world);
}

Group Group::world() {
  const std::lock_guard lock(g_mutex);
  if (!g_world.is_member()) throw UsageError("no world yet: call init_parallel_env() first");
  return g_world;
}

const Group::State& Group::state() const {
  if (!state_) throw UsageError("this process is not a member of the group; ask is_member() before using it");
  return *state_;
}

int Group::rank() const {
  return state_ ? state_->rank : -1;
}
int Group::size() const {
  return state_ ? static_cast<int>(state_->ranks.size()) : 0;
}
const std::vector<int>& Group::ranks() const {
  return state().ranks;
}
std::string Group::backend() const {
  return state().cpu->getBackendName();
}
std::string Group::cuda_backend() const {
  return state().cuda ? state().cuda->getBackendName() : "staged " + backend();
}
std::chrono::milliseconds Group::timeout() const {
  return state().context->options().timeout;
}

void Group::abort(std::string_view reason) const {
  state().cpu->engine().abort(reason);
  if (state().cuda) state().cuda->abort();
}

Group Group::new_group(const std::vector<int>& ranks) const {
  return make_group(state().context, world_ranks(state().ranks, ranks), "new_group");
}

Group new_line(const Group& group, const std::vector<int>& ranks, const std::string& axis) {
  return make_group(group.state().context, world_ranks(group.ranks(), ranks), "new_group", axis);
}

Group duplicate(const Group& group) {
  return make_group(group.state().context, group.ranks(), "new_group", group.state().axis);
}

Group Group::split(int color, int key) const {
  struct Wish {
    int color, key, rank;
  };
  const Wish mine{color, key, rank()};
  std::vector<Wish> wishes(static_cast<size_t>(size()));
  const std::vector<size_t> counts(wishes.size(), sizeof(Wish));
  state().cpu->run_now([&](comm::Engine& engine) { engine.all_gather(&mine, counts, comm::DType::u8, wishes.data()); });
  std::erase_if(wishes, [&](const Wish& wish) { return wish.color != color; });
  std::stable_sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) { return a.key < b.key; });
  if (color < 0) return {};
  std::vector<int> members;
  for (const Wish& wish : wishes) members.push_back(wish.rank);
  return new_group(members);
}

}  // namespace trireme
