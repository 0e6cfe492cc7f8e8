#include "trireme/comm/staging.h"

#include <ATen/MemoryOverlap.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/comm/dtype.h"
#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

// Elements lie apart when each stride is larger than all the way that the smaller ones can go. Strides that as_strided
// or unfold made may interleave without meeting: then their places are counted.
bool shares_elements(const at::Tensor& tensor) {
  if (tensor.numel() < 2 || tensor.is_non_overlapping_and_dense()) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1) dims.emplace_back(tensor.stride(i), tensor.size(i));
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  bool apart = true;
  for (const auto& [stride, size] : dims) {
    if (stride == 0) return true;
    apart &= stride > reach;
    reach += stride * (size - 1);
  }
  if (apart) return false;
  const at::Tensor places = at::arange(reach + 1).as_strided(tensor.sizes(), tensor.strides());
  return std::get<0>(at::_unique(places)).numel() < tensor.numel();
}

}  // namespace

void check_dense(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided)
    throw UsageError("a {} tensor: only dense ones can be communicated; call to_dense() or use dense gradients",
                     c10::str(tensor.layout()));
}

void check_writable(const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided && shares_elements(tensor))
    throw UsageError(
        "a tensor of shape {} with strides {}: its elements share memory, so no result can be written to it; clone() "
        "it first",
        c10::str(tensor.sizes()), c10::str(tensor.strides()));
}

void check_same_size(const char* what, const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() != b.numel() || a.scalar_type() != b.scalar_type())
    throw UsageError("{}: {}[{}] where {}[{}] is needed", what, c10::str(a.scalar_type()), a.numel(),
                     c10::str(b.scalar_type()), b.numel());
}

void check_apart(const std::vector<at::Tensor>& results) {
  std::vector<std::pair<const char*, const char*>> places;  // begin and end, of dense ones
  for (const at::Tensor& result : results)
    if (result.layout() == at::kStrided && result.numel() > 0 && result.is_non_overlapping_and_dense()) {
      const auto* begin = static_cast<const char*>(result.const_data_ptr());
      places.emplace_back(begin, begin + result.nbytes());
    }
  std::sort(places.begin(), places.end());
  const auto meet = [](const auto& a, const auto& b) { return b.first < a.second; };
  if (std::adjacent_find(places.begin(), places.end(), meet) != places.end())
    throw UsageError("a list of {} outputs, of which some share memory; each needs its own", results.size());
}

at::Tensor apart_from(const at::Tensor& output, const at::Tensor& input) {
  check_dense(output), check_dense(input);
  const at::MemOverlapStatus status = at::get_overlap_status(output, input);
  return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial ? input.clone() : input;
}

Staged::Staged(const at::Tensor& tensor) : tensor_(tensor.detach()) {
  check_dense(tensor);
  dense_ = tensor_.to(at::kCPU).contiguous().resolve_conj().resolve_neg();
}

void Staged::write_back() const {
  if (!dense_.is_same(tensor_) && dense_.data_ptr() != tensor_.data_ptr()) tensor_.copy_(dense_);
}

Joined::Joined(const std::vector<at::Tensor>& parts) : parts_(parts) {
  int64_t elements = 0;
  for (const at::Tensor& part : parts) {
    check_dense(part);
    if (part.scalar_type() != parts.front().scalar_type())
      throw UsageError("a list of {} and {} tensors; all must have one type", c10::str(parts.front().scalar_type()),
                       c10::str(part.scalar_type()));
    elements += part.numel();
  }
  buffer_ = at::empty({elements}, at::TensorOptions(parts.front().scalar_type()));
}

void Joined::pack() const {
  each([](const at::Tensor& part, const at::Tensor& place) { place.copy_(part.detach().reshape(-1)); });
}

void Joined::unpack() const {
  each([](const at::Tensor& part, const at::Tensor& place) { part.detach().copy_(place.view(part.sizes())); });
}

std::vector<size_t> Joined::counts(size_t factor) const {
  std::vector<size_t> result;
  for (const at::Tensor& part : parts_) result.push_back(static_cast<size_t>(part.numel()) * factor);
  return result;
}

template <typename F>
void Joined::each(F f) const {
  int64_t begin = 0;
  for (const at::Tensor& part : parts_) {
    f(part, buffer_.narrow(0, begin, part.numel()));
    begin += part.numel();
  }
}

std::vector<size_t> row_counts(const at::Tensor& tensor, const std::vector<int64_t>& lengths, int ranks,
                               const char* which) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  const size_t row = static_cast<size_t>(rows == 0 ? 0 : tensor.numel() / rows) * moving_factor(tensor.scalar_type());
  if (lengths.empty()) {
    if (rows % ranks != 0)
      throw UsageError("all_to_all: the {} has {} rows, which {} ranks cannot share evenly; give the lengths", which,
                       rows, ranks);
    return std::vector<size_t>(static_cast<size_t>(ranks), static_cast<size_t>(rows / ranks) * row);
  }
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t least = *std::min_element(lengths.begin(), lengths.end());
  if (lengths.size() != static_cast<size_t>(ranks) || sum != rows || least < 0)
    throw UsageError(
        "all_to_all: {} lengths, of which the least is {} and the sum {}, for the {} of {} rows and {} "
        "ranks; give one for each rank, from 0 up, with the rows as their sum",
        lengths.size(), least, sum, which, rows, ranks);
  std::vector<size_t> counts;
  for (const int64_t length : lengths) counts.push_back(static_cast<size_t>(length) * row);
  return counts;
}

}  // namespace trireme::comm
