#include "trireme/train/trainer/make_team.h"

#include <torch/torch.h>

namespace trireme::trainer {

Team make_team(const config::Global& global) {
  if (global.device == config::Device::cpu) return Team(torch::kCPU);
  Team team;
  if (!team.device().is_cuda())
    global.node.at("device").fail(
        "rank {} has no GPU that could be used (`trireme doctor` tells why); to train on the CPU: -o Global.device=cpu",
        team.me().rank);
  return team;
}

}  // namespace trireme::trainer
