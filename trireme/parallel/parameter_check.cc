#include "trireme/parallel/parameter_check.h"

#include <torch/torch.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"

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

// Row r holds the checksums of rank r: bits and finiteness of each tensor, one after the other.
torch::Tensor gathered(const std::vector<Checksum>& mine, const Group& group) {
  const auto count = static_cast<int64_t>(mine.size());
  const torch::Tensor row = torch::empty({2 * count}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    row[2 * i] = mine[static_cast<size_t>(i)].bits;
    row[2 * i + 1] = mine[static_cast<size_t>(i)].finite ? 1 : 0;
  }
  const torch::Tensor all = torch::empty({group.size(), 2 * count}, torch::kLong);
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

[[noreturn]] void report(const torch::nn::Module& module, const Group& group, const std::string& when,
                         NonFinite non_finite) {
  const auto parameters = module.named_parameters();
  std::vector<Checksum> each;
  for (const auto& item : parameters) each.push_back(checksum(item.value()));
  const torch::Tensor all = gathered(each, group);
  const int64_t column = first_bad_column(all, non_finite);
  if (column < 0) throw UsageError("{}: a parameter changed while the ranks compared theirs", when);
  const std::string& name = parameters[static_cast<size_t>(column / 2)].key();
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const int64_t value = all[rank][column].item<int64_t>();
    if (column % 2 == 1 && value == 0)
      throw UsageError(
          "{}: parameter {} of rank {} is not finite (NaN or infinity); lower the learning rate, clip the gradients, "
          "or go back to a checkpoint",
          when, name, group.ranks()[static_cast<size_t>(rank)]);
    if (column % 2 == 0 && value != all[0][column].item<int64_t>())
      throw UsageError(
          "{}: parameter {} of rank {} differs from that of rank {}; something changed it on one rank only (weights "
          "loaded there, a layer added with other random numbers, an optimizer step the others did not make): do the "
          "same on every rank, or broadcast() it",
          when, name, group.ranks()[static_cast<size_t>(rank)], group.ranks()[0]);
  }
  throw UsageError("{}: parameter {} differs between the ranks", when, name);
}

}  // namespace

void require_equal_parameters(const torch::nn::Module& module, const Group& group, const std::string& when,
                              NonFinite non_finite) {
  const torch::NoGradGuard no_grad;
  if (first_bad_column(gathered({checksum_of_all(module.parameters())}, group), non_finite) >= 0)
    report(module, group, when, non_finite);
}

int64_t checksum_of(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_grad;
  return checksum(parameter.clone()).bits;  // an operator, so that values which lie elsewhere are there
}

}  // namespace trireme::parallel
