#include "trireme/parallel/same_model.h"

#include <torch/torch.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "trireme/comm/collectives.h"
#include "trireme/comm/group_state.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/optim/split_tensors.h"

namespace trireme {
namespace {

constexpr size_t kBroadcastBytes = size_t{25} << 20;

std::string describe(const char* kind, const std::string& name, const torch::Tensor& tensor) {
  // What travels as plain memory, a shard say, must lie in the same order everywhere.
  const std::string order = tensor.is_contiguous() ? "" : fmt::format(" with strides {}", c10::str(tensor.strides()));
  return fmt::format("{} {} {}{}", kind, name, describe_tensor(tensor), order);
}

// "" when they agree.
std::string first_difference(const std::vector<std::string>& theirs, const std::vector<std::string>& mine,
                             const Group& group) {
  for (size_t i = 0; i < std::max(theirs.size(), mine.size()); ++i) {
    const std::string at_root = i < theirs.size() ? theirs[i] : "nothing more";
    const std::string here = i < mine.size() ? mine[i] : "nothing more";
    if (at_root != here)
      return fmt::format("tensor {} of {} is {} on {} and {} on {}, which has {} tensors", i, theirs.size(), at_root,
                         place_of(group, 0), here, own_place(group), mine.size());
  }
  return "";
}

}  // namespace

std::string describe_tensor(const torch::Tensor& tensor) {
  std::vector<std::string> sizes;
  for (const int64_t size : tensor.sizes()) sizes.push_back(std::to_string(size));
  return fmt::format("{}[{}]{}", c10::str(tensor.scalar_type()), join(sizes, ", "),
                     tensor.requires_grad() ? "" : " without gradient");
}

std::vector<std::string> describe_model(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) lines.push_back(describe("parameter", item.key(), item.value()));
  for (const auto& item : module.named_buffers()) lines.push_back(describe("buffer", item.key(), item.value()));
  return lines;
}

void require_same_model(const torch::nn::Module& module, const Group& group, const char* who) {
  if (group.size() == 1) return;
  const std::vector<std::string> mine = describe_model(module);
  const std::vector<std::string> theirs = split(broadcast_object(join(mine, "\n"), 0, group), '\n');
  for (const std::string& difference : all_gather_object(first_difference(theirs, mine, group), group))
    if (!difference.empty())
      throw UsageError("{}: the ranks have different models: {}; build the same model on every rank", who, difference);
}

void require_no_split_over(const torch::nn::Module& module, const Group& group, const char* who) {
  for (const auto& item : module.named_parameters()) {
    const auto how = optim::split_of(item.value());
    if (!how) continue;
    const std::vector<int>& ranks = group.ranks();
    const auto shared = std::count_if(how->ranks.begin(), how->ranks.end(), [&](int rank) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    });
    if (shared > 1)
      throw UsageError(
          "{}: parameter {} is split over {} of these {} ranks, which have different parts of it; use another axis of "
          "the mesh, such as mesh[\"data\"]",
          who, item.key(), shared, group.size());
  }
}

void broadcast_tensors(const std::vector<torch::Tensor>& tensors, int root, const Group& group) {
  if (group.size() == 1 || tensors.empty()) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> detached;
  for (const torch::Tensor& tensor : tensors) detached.push_back(tensor.detach());
  c10d::broadcast_coalesced(group.state().process_group, detached, kBroadcastBytes, root);
}

void broadcast_state(const torch::nn::Module& module, int root, const Group& group) {
  std::vector<torch::Tensor> state = module.parameters();
  for (const torch::Tensor& buffer : module.buffers()) state.push_back(buffer);
  broadcast_tensors(state, root, group);
}

}  // namespace trireme
