#include "trireme/parallel/parameter_check.h"

#include <ATen/Context.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::parallel {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int64_t kGroupBytes = int64_t{64} << 20;  // of tensors that are joined on a GPU to be read together

struct Checksum {
  int64_t bits = 0;
  bool finite = true;
};

// Four lanes, so that the multiplications overlap.
uint64_t hash_bytes(const void* data, size_t size) {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15u;
  uint64_t lanes[4] = {1, 2, 3, 4};
  const auto* bytes = static_cast<const char*>(data);
  size_t at = 0;
  for (; at + 32 <= size; at += 32)
    for (int lane = 0; lane < 4; ++lane) {
      uint64_t word;
      std::memcpy(&word, bytes + at + 8 * lane, 8);
      lanes[lane] = (lanes[lane] ^ word) * kPrime;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  for (; at < size; ++at) lanes[0] = (lanes[0] ^ static_cast<uint8_t>(bytes[at])) * kPrime;
  return std::accumulate(lanes, lanes + 4, uint64_t{size},
                         [](uint64_t all, uint64_t lane) { return (all ^ lane) * kPrime; });
}

bool is_finite(const torch::Tensor& tensor) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return true;
  // A finite sum proves that all are; an overflowing one proves nothing.
  return torch::isfinite(tensor.sum()).item<bool>() || torch::isfinite(tensor).all().item<bool>();
}

Checksum on_cpu(const torch::Tensor& tensor) {
  const torch::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  return {static_cast<int64_t>(hash_bytes(dense.data_ptr(), dense.nbytes())), is_finite(dense)};
}

// By sums of the bits as integers, so that only two numbers leave the device.
Checksum on_device(const torch::Tensor& flat) {
  const auto integer = flat.element_size() == 2 ? torch::kShort : flat.element_size() == 8 ? torch::kLong : torch::kInt;
  const torch::Tensor bits = flat.element_size() == 1 ? flat : flat.view(integer);
  return {bits.sum(torch::kLong).item<int64_t>(), is_finite(flat)};
}

Checksum checksum(const torch::Tensor& tensor) {
  return tensor.is_cpu() ? on_cpu(tensor) : on_device(tensor.reshape(-1));
}

Checksum joined(const Checksum& a, const Checksum& b) {
  return {static_cast<int64_t>(static_cast<uint64_t>(a.bits) * 31 + static_cast<uint64_t>(b.bits)),
          a.finite && b.finite};
}

// On a GPU a call costs more than the bytes of a small tensor: neighbours of one type are read together.
Checksum checksum_of_all(const Tensors& tensors) {
  Checksum all;
  Tensors together;
  int64_t bytes = 0;
  const auto flush = [&] {
    if (!together.empty()) all = joined(all, on_device(torch::cat(together)));
    together.clear();
    bytes = 0;
  };
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.is_cpu()) {
      all = joined(all, on_cpu(tensor));
      continue;
    }
    if (!together.empty() && (together[0].dtype() != tensor.dtype() || bytes > kGroupBytes)) flush();
    together.push_back(tensor.reshape(-1));
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  flush();
  return all;
}

// Row r holds the checksums of rank r: bits and finiteness of each tensor, one after the other, and a 0. With that one
// checksum is not as long as a row of the roll call (roll_call.h), so that the two cannot be taken for each other.
torch::Tensor gathered(const std::vector<Checksum>& mine, const Group& group) {
  const auto count = static_cast<int64_t>(mine.size());
  const torch::Tensor row = torch::zeros({2 * count + 1}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    row[2 * i] = mine[static_cast<size_t>(i)].bits;
    row[2 * i + 1] = mine[static_cast<size_t>(i)].finite ? 1 : 0;
  }
  const torch::Tensor all = torch::empty({group.size(), 2 * count + 1}, torch::kLong);
  all_gather(all, row, group);
  return all;
}

// The column of the first checksum that is not as it should be, or -1.
int64_t first_bad_column(const torch::Tensor& all, NonFinite non_finite) {
  for (int64_t column = 0; column < all.size(1); ++column)
    for (int64_t rank = 0; rank < all.size(0); ++rank) {
      const int64_t value = all[rank][column].item<int64_t>();
      const bool bad =
          column % 2 == 0 ? value != all[0][column].item<int64_t>() : non_finite == NonFinite::error && value == 0;
      if (bad) return column;
    }
  return -1;
}

[[noreturn]] void throw_not_finite(const std::string& when, const std::string& name, const std::string& place) {
  throw UsageError(
      "{}: parameter {} of {} is not finite (NaN or infinity); lower the learning rate, clip the gradients, or go back "
      "to a checkpoint",
      when, name, place);
}

[[noreturn]] void report(const torch::nn::Module& module, const Group& group, const std::string& when,
                         NonFinite non_finite) {
  const auto parameters = module.named_parameters();
  std::vector<Checksum> each;
  for (const auto& item : parameters) each.push_back(checksum(item.value()));
  const torch::Tensor all = gathered(each, group);
  const int64_t column = first_bad_column(all, non_finite);
  if (column < 0) throw UsageError("{}: a parameter changed while the ranks compared theirs", when);
  const std::string& name = parameters[static_cast<size_t>(column / 2)].key();
  for (int rank = 0; rank < group.size(); ++rank) {
    const int64_t value = all[rank][column].item<int64_t>();
    if (column % 2 == 1 && value == 0) throw_not_finite(when, name, place_of(group, rank));
    if (column % 2 == 0 && value != all[0][column].item<int64_t>())
      throw UsageError(
          "{}: parameter {} of {} differs from that of {}; something changed it on one rank only (weights "
          "loaded there, a layer added with other random numbers, an optimizer step the others did not make): do the "
          "same on every rank, or broadcast() it",
          when, name, place_of(group, rank), place_of(group, 0));
  }
  throw UsageError("{}: parameter {} differs between the ranks", when, name);
}

std::shared_ptr<const optim::SplitTensors> split_over_ranks(const torch::Tensor& parameter) {
  auto how = optim::split_of(parameter);
  return how && how->ranks.size() > 1 ? how : nullptr;
}

// The place of the first number that is not the same on all ranks of the split, or -1.
int64_t first_difference(const std::vector<int64_t>& mine, const optim::SplitTensors& split) {
  const torch::Tensor numbers = torch::tensor(mine, torch::kLong).bitwise_right_shift(1);  // so that -x exists
  const torch::Tensor largest = torch::stack({numbers, -numbers});
  split.max(largest);
  const torch::Tensor differs = largest.sum(0).ne(0);
  return differs.any().item<bool>() ? differs.to(torch::kInt).argmax().item<int64_t>() : -1;
}

std::string difference_over(const optim::SplitTensors& split, const Replicas& replicas, const std::string& when) {
  if (first_difference({checksum_of_all(replicas.tensors.values()).bits}, split) < 0) return "";
  std::vector<int64_t> each;
  for (const auto& item : replicas.tensors) each.push_back(checksum(item.value()).bits);
  const int64_t place = first_difference(each, split);
  std::vector<std::string> ranks;
  for (const int rank : split.ranks) ranks.push_back(std::to_string(rank));
  return fmt::format(
      "{}: parameter {} differs between ranks {}, over which other parameters of the model are split; give these ranks "
      "the same weights, inputs and random numbers (seed_along()), and clip by optim::clip_grad_norm(), not by "
      "torch::nn::utils::clip_grad_norm_(). If each rank has a part of it, say so by optim::mark_split()",
      when,
      place < 0 ? "(one that changed while the ranks compared theirs)"
                : replicas.tensors[static_cast<size_t>(place)].key(),
      join(ranks, ", "));
}

}  // namespace

Replicas replicas_of(const torch::nn::Module& module) {
  Replicas replicas;
  for (const auto& item : module.named_parameters()) {
    const auto split = split_over_ranks(item.value());
    if (!split) replicas.tensors.insert(item.key(), item.value());
    if (!item.value().is_cpu()) replicas.on_cpu = false;
    const auto known = [&](const auto& other) { return split->ranks == other->ranks; };
    if (split && std::none_of(replicas.splits.begin(), replicas.splits.end(), known)) replicas.splits.push_back(split);
  }
  return replicas;
}

// Every rank throws, also when only others have found a difference. An abort would come too late: a rank that has not
// heard of it could wait in its layers for one that has thrown.
std::string difference_of_replicas(const Replicas& replicas, const Group& group, const std::string& when) {
  if (replicas.splits.empty() || replicas.tensors.is_empty()) return "";
  const torch::NoGradGuard no_grad;
  std::string mine;
  for (const auto& split : replicas.splits) {  // all of them: each has other ranks, which wait for this one
    const std::string difference = difference_over(*split, replicas, when);
    if (mine.empty()) mine = difference;
  }
  for (const std::string& difference : all_gather_object(mine, group))
    if (!difference.empty()) return difference;
  return "";
}

bool must_stay_equal(const Replicas& replicas) {
  return replicas.on_cpu || at::globalContext().deterministicAlgorithms();
}

void require_equal_parameters(const torch::nn::Module& module, const Group& group, const std::string& when,
                              NonFinite non_finite) {
  const torch::NoGradGuard no_grad;
  if (first_bad_column(gathered({checksum_of_all(module.parameters())}, group), non_finite) >= 0)
    report(module, group, when, non_finite);
}

void require_finite(const torch::OrderedDict<std::string, torch::Tensor>& pieces, const Group& group,
                    const std::string& when) {
  const torch::NoGradGuard no_grad;
  std::string mine;
  for (const auto& item : pieces)
    if (mine.empty() && !is_finite(item.value())) mine = item.key();
  const std::vector<std::string> all = all_gather_object(mine, group);
  for (int rank = 0; rank < group.size(); ++rank)
    if (const std::string& name = all[static_cast<size_t>(rank)]; !name.empty())
      throw_not_finite(when, name, place_of(group, rank));
}

int64_t checksum_of(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  return checksum(parameter.clone()).bits;  // an operator, so that values which lie elsewhere are there
}

}  // namespace trireme::parallel
