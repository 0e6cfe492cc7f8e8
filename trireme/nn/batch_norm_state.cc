#include "trireme/nn/batch_norm_state.h"

#include <atomic>
#include <utility>

namespace trireme::nn {
namespace {

thread_local bool statistics_stay = false;
std::atomic<IsJoined> joined = nullptr;

}  // namespace

RunningStatisticsStay::RunningStatisticsStay() : before_(std::exchange(statistics_stay, true)) {}

RunningStatisticsStay::~RunningStatisticsStay() {
  statistics_stay = before_;
}

bool running_statistics_stay() {
  return statistics_stay;
}

void set_is_batch_norm_joined(IsJoined is_joined) {
  joined = is_joined;
}

bool is_batch_norm_joined(const torch::Tensor& weight) {
  const IsJoined is_joined = joined;
  return is_joined != nullptr && is_joined(weight);
}

}  // namespace trireme::nn
