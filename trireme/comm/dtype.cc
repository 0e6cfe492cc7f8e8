#include "trireme/comm/dtype.h"

#include <torch/utils.h>

#include <optional>

#include "trireme/core/error.h"

namespace trireme {
namespace {

std::optional<DType> known(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat:
      return DType::f32;
    case torch::kDouble:
      return DType::f64;
    case torch::kHalf:
      return DType::f16;
    case torch::kBFloat16:
      return DType::bf16;
    case torch::kChar:
      return DType::i8;
    case torch::kByte:
      return DType::u8;
    case torch::kShort:
      return DType::i16;
    case torch::kInt:
      return DType::i32;
    case torch::kLong:
      return DType::i64;
    case torch::kBool:
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

std::optional<DType> real_part(torch::ScalarType type) {
  switch (type) {
    case torch::kComplexFloat:
      return DType::f32;
    case torch::kComplexDouble:
      return DType::f64;
    default:
      return std::nullopt;
  }
}

}  // namespace

Elements for_reduction(const torch::Tensor& dense, ReduceOp op) {
  Elements elements{dense.data_ptr(), static_cast<size_t>(dense.numel())};
  if (const auto real = real_part(dense.scalar_type())) {
    if (op != ReduceOp::sum && op != ReduceOp::avg)
      throw UsageError("{} of {} numbers: complex numbers have only sum and avg", shm::to_string(op),
                       torch::toString(dense.scalar_type()));
    elements.dtype = *real;
    elements.count *= 2;
    return elements;
  }
  const auto dtype = known(dense.scalar_type());
  if (!dtype)
    throw UsageError("no reduction of {} tensors; convert them first, e.g. to float or bfloat16",
                     torch::toString(dense.scalar_type()));
  shm::check_reducible(*dtype, op);
  elements.dtype = *dtype;
  return elements;
}

size_t moving_factor(torch::ScalarType type) {
  return known(type) ? 1 : c10::elementSize(type);
}

Elements for_moving(const torch::Tensor& dense) {
  return {dense.data_ptr(), static_cast<size_t>(dense.numel()) * moving_factor(dense.scalar_type()),
          known(dense.scalar_type()).value_or(DType::u8)};
}

}  // namespace trireme
