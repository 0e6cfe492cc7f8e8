#include "trireme/nn/batch_norm_state.h"

#include <atomic>
#include <utility>

namespace trireme::nn {
namespace {

thread_local bool statistics_stay = false;
std::atomic<FindNormPeers> find_peers = nullptr;

}  // namespace

RunningStatisticsStay::RunningStatisticsStay() : before_(std::exchange(statistics_stay, true)) {}

RunningStatisticsStay::~RunningStatisticsStay() {
  statistics_stay = before_;
}

bool running_statistics_stay() {
  return statistics_stay;
}

void set_find_norm_peers(FindNormPeers find) {
  find_peers = find;
}

std::shared_ptr<const NormPeers> norm_peers(const torch::Tensor& weight) {
  const FindNormPeers find = find_peers;
  return find == nullptr ? nullptr : find(weight);
}

}  // namespace trireme::nn
