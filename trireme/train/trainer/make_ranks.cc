#include "trireme/train/trainer/make_ranks.h"

#include <torch/torch.h>

namespace trireme::trainer {

train::Ranks make_ranks(const config::Global& global) {
  if (global.device == config::Device::cpu) return train::Ranks(torch::kCPU);
  train::Ranks ranks;
  if (!ranks.device().is_cuda())
    global.node.at("device").fail(
        "rank {} has no GPU that could be used (`trireme doctor` tells why); to train on the CPU: -o Global.device=cpu",
        ranks.me().rank);
  return ranks;
}

}  // namespace trireme::trainer
