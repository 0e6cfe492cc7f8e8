// What is behind a Group: c10d's process group and our backends under it.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "trireme/comm/context.h"
#include "trireme/comm/engine_backend.h"
#include "trireme/comm/group.h"

namespace trireme {

struct Group::State {
  std::shared_ptr<comm::Context> context;
  std::string name;
  std::vector<int> ranks;  // of the world
  int rank = 0;            // of this process in the group
  std::string axis;        // of the mesh that this is a line of
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  c10::intrusive_ptr<comm::EngineBackend> cpu;
  c10::intrusive_ptr<c10d::Backend> cuda;  // null: CUDA tensors are staged through the CPU

  State() = default;
  ~State();  // ends NCCL in order; it warns when it is just dropped
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  c10d::Backend& backend_for(const c10::Device& device) const;
};

/// The group of all ranks; sets what Group::world() returns. Called by init_parallel_env().
Group make_world_group(const std::shared_ptr<comm::Context>& context);
/// Forgets it: Group::world() throws again. Copies of the group live on.
void forget_world_group();

}  // namespace trireme
