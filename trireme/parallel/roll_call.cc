#include "trireme/parallel/roll_call.h"

#include <torch/torch.h>

#include "trireme/comm/collectives.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kActive = 1, kLook = 2, kByHand = 4;

}  // namespace

void RollCall::begin(const Answer& mine) {
  const int64_t flags = (mine.active ? kActive : 0) + (mine.look ? kLook : 0) + (mine.by_hand ? kByHand : 0);
  mine_ = torch::tensor({flags, static_cast<int64_t>(mine.model)}, torch::kLong);
  all_ = torch::zeros({group_.size(), 2}, torch::kLong);
  work_ = all_gather_async(all_, mine_, group_);
}

std::vector<int> RollCall::active() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < group_.size(); ++rank)
    if ((answer(rank, 0) & kActive) != 0) ranks.push_back(rank);
  return ranks;
}

bool RollCall::look() const {
  return any(kLook);
}

bool RollCall::by_hand() const {
  return any(kByHand);
}

bool RollCall::any(int64_t flag) const {
  for (int rank = 0; rank < group_.size(); ++rank)
    if ((answer(rank, 0) & flag) != 0) return true;
  return false;
}

int RollCall::with_another_model() const {
  for (int rank = 0; rank < group_.size(); ++rank)
    if (answer(rank, 1) != answer(group_.rank(), 1)) return rank;
  return -1;
}

}  // namespace trireme::parallel
