#include "values.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <limits>

namespace trireme::ranks {
namespace {

constexpr double kRound = 0.5;  // of the distance between neighbours, that is of epsilon

double epsilon(torch::ScalarType type) {
  switch (type) {
    case torch::kDouble:
      return std::numeric_limits<double>::epsilon();
    case torch::kHalf:
      return 1.0 / 1024;
    case torch::kBFloat16:
      return 1.0 / 128;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

// contribution() repeats after as many elements: large tensors are copies of one period, which takes a tenth of the time.
constexpr int64_t kPeriod = 251;

torch::Tensor numbers(int rank, uint64_t seed, int64_t count) {
  const auto shift = static_cast<int64_t>(seed % 1009) * 37 + rank * 91;
  return torch::arange(count, torch::kLong).mul_(2 * rank + 3).add_(shift).remainder_(kPeriod).remainder_(7);
}

torch::Tensor typed_numbers(int rank, uint64_t seed, int64_t count, torch::ScalarType type) {
  const torch::Tensor base = numbers(rank, seed, count);
  if (type == torch::kBool) return base.gt(1);
  const torch::Tensor centred = base - 3;
  if (c10::isIntegralType(type, false)) return centred.to(type);
  // Far enough from 0 that a product over many ranks is a normal number of any type.
  const torch::Tensor fractions =
      centred.to(torch::kDouble) * 0.37 + torch::where(centred.ge(0), 0.5, -0.5) + 0.01 * rank;
  if (!c10::isComplexType(type)) return fractions.to(type);
  return torch::complex(fractions, (numbers(rank + 1, seed + 1, count).to(torch::kDouble) - 3) * 0.41).to(type);
}

// Wide enough to hold every intermediate result of what is not exact.
torch::ScalarType wide(torch::ScalarType type) {
  return c10::isComplexType(type) ? torch::kComplexDouble : torch::kDouble;
}

torch::Tensor join(const torch::Tensor& a, const torch::Tensor& b, ReduceOp op) {
  const bool is_bool = a.scalar_type() == torch::kBool;
  switch (op) {
    case ReduceOp::prod:
      return is_bool ? a.logical_and(b) : a.mul(b);
    case ReduceOp::min:
      return torch::minimum(a, b);
    case ReduceOp::max:
      return torch::maximum(a, b);
    default:
      return is_bool ? a.logical_or(b) : a.add(b);
  }
}

torch::Tensor flat(const torch::Tensor& tensor) {
  return tensor.detach().contiguous().reshape(-1);
}

[[noreturn]] void mismatch(const std::string& what, const torch::Tensor& wrong, const torch::Tensor& got,
                           const torch::Tensor& wanted) {
  const int64_t at = torch::nonzero(wrong)[0].item<int64_t>();
  throw Mismatch(fmt::format("{}: element {} is {}, not {} ({} of {} are wrong)", what, at, c10::str(got[at].item()),
                             c10::str(wanted[at].item()), wrong.sum().item<int64_t>(), got.numel()));
}

void expect_same_form(const std::string& what, const torch::Tensor& got, const torch::Tensor& wanted) {
  if (got.scalar_type() == wanted.scalar_type() && got.sizes() == wanted.sizes()) return;
  throw Mismatch(fmt::format("{}: {}{}, not {}{}", what, c10::str(got.scalar_type()), c10::str(got.sizes()),
                             c10::str(wanted.scalar_type()), c10::str(wanted.sizes())));
}

}  // namespace

const char* to_string(Layout layout) {
  static constexpr const char* kNames[] = {"contiguous", "transposed", "channels_last", "strided", "offset", "leaf"};
  return kNames[static_cast<size_t>(layout)];
}

bool has_reduction(torch::ScalarType type, ReduceOp op) {
  if (c10::isComplexType(type)) return op == ReduceOp::sum || op == ReduceOp::avg;
  return op != ReduceOp::avg || c10::isFloatingType(type);
}

torch::Tensor contribution(int rank, uint64_t seed, const Shape& shape, torch::ScalarType type) {
  const int64_t count = c10::multiply_integers(shape);
  if (count <= kPeriod) return typed_numbers(rank, seed, count, type).reshape(shape);
  const torch::Tensor period = typed_numbers(rank, seed, kPeriod, type);
  return period.repeat({(count + kPeriod - 1) / kPeriod}).narrow(0, 0, count).reshape(shape);
}

torch::Tensor in_layout(Layout layout, const torch::Tensor& values) {
  switch (layout) {
    case Layout::transposed:
      return values.dim() < 2 ? values.clone() : values.transpose(0, -1).contiguous().transpose(0, -1);
    case Layout::channels_last:
      return values.dim() == 4 ? values.contiguous(torch::MemoryFormat::ChannelsLast) : values.clone();
    case Layout::strided: {
      const torch::Tensor wider = torch::empty_like(values).unsqueeze(-1).repeat_interleave(2, -1);
      return wider.select(-1, 1).copy_(values);
    }
    case Layout::offset:
      return torch::empty({values.numel() + 3}, values.options())
          .narrow(0, 3, values.numel())
          .view(values.sizes())
          .copy_(values);
    case Layout::leaf: {
      const bool has_gradient = values.is_floating_point() || values.is_complex();
      return values.clone().requires_grad_(has_gradient);
    }
    default:
      return values.clone();
  }
}

std::string object_of(int rank, uint64_t seed) {
  const size_t length = (seed + static_cast<uint64_t>(rank) * 3) % 5 == 0 ? 0 : (seed * 131 + 977 * (rank + 1)) % 5000;
  std::string object(length, '\0');
  for (size_t i = 0; i < length; ++i) object[i] = static_cast<char>((i + seed) * (2 * static_cast<size_t>(rank) + 3));
  return object;
}

Reduced reduce_here(const std::vector<torch::Tensor>& all, ReduceOp op, int roundings) {
  const torch::ScalarType type = all[0].scalar_type();
  const bool exact = c10::isIntegralType(type, true) || op == ReduceOp::min || op == ReduceOp::max;
  const auto widened = [&](const torch::Tensor& tensor) { return exact ? tensor : tensor.to(wide(type)); };
  torch::Tensor result = widened(all[0]);
  for (size_t rank = 1; rank < all.size(); ++rank) result = join(result, widened(all[rank]), op);
  if (op == ReduceOp::avg) result = result / static_cast<double>(all.size());
  if (exact) return {result, {}};
  torch::Tensor size = torch::zeros_like(result.abs());  // of the largest number on the way
  for (const torch::Tensor& one : all) size = op == ReduceOp::prod ? result.abs() : size + widened(one).abs();
  if (roundings == 1) return {result, result.abs() * (epsilon(type) * kRound * 1.01) + size * epsilon(torch::kFloat)};
  return {result, size * (epsilon(type) * kRound * roundings)};
}

void expect_equal(const std::string& what, const torch::Tensor& got, const torch::Tensor& wanted) {
  expect_same_form(what, got, wanted);
  const torch::Tensor wrong = flat(got).ne(flat(wanted));
  if (wrong.any().item<bool>()) mismatch(what, wrong, flat(got), flat(wanted));
}

void expect_close(const std::string& what, const torch::Tensor& got, const Reduced& wanted) {
  if (!wanted.slack.defined()) return expect_equal(what, got, wanted.values);
  const torch::Tensor off = (flat(got).to(wanted.values.scalar_type()) - flat(wanted.values)).abs();
  const torch::Tensor wrong = off.le(flat(wanted.slack)).logical_not();  // a NaN is wrong too
  if (wrong.any().item<bool>()) mismatch(what, wrong, flat(got), flat(wanted.values));
}

void expect_equal(const std::string& what, const std::string& got, const std::string& wanted) {
  if (got != wanted)
    throw Mismatch(fmt::format("{}: an object of {} bytes, not the one of {}", what, got.size(), wanted.size()));
}

std::string bytes_of(const torch::Tensor& tensor) {
  const torch::Tensor dense = flat(tensor);
  return {static_cast<const char*>(dense.data_ptr()), dense.nbytes()};
}

}  // namespace trireme::ranks
