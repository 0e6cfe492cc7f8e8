#include "trireme/comm/dtype.h"

#include <torch/utils.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

struct Pair {
  DType dtype;
  torch::ScalarType type;
};
constexpr Pair kPairs[] = {{DType::f32, torch::kFloat},     {DType::f64, torch::kDouble}, {DType::f16, torch::kHalf},
                           {DType::bf16, torch::kBFloat16}, {DType::i8, torch::kChar},    {DType::u8, torch::kByte},
                           {DType::i16, torch::kShort},     {DType::i32, torch::kInt},    {DType::i64, torch::kLong},
                           {DType::boolean, torch::kBool}};

struct OpPair {
  ReduceOp op;
  c10d::ReduceOp::RedOpType in_c10d;
};
constexpr OpPair kOpPairs[] = {{ReduceOp::sum, c10d::ReduceOp::SUM},
                               {ReduceOp::prod, c10d::ReduceOp::PRODUCT},
                               {ReduceOp::min, c10d::ReduceOp::MIN},
                               {ReduceOp::max, c10d::ReduceOp::MAX},
                               {ReduceOp::avg, c10d::ReduceOp::AVG}};

std::optional<DType> known(torch::ScalarType type) {
  for (const Pair& pair : kPairs)
    if (pair.type == type) return pair.dtype;
  return std::nullopt;
}

// The shape of a tensor whose elements are `factor` of the engines' each.
Dims dims_of(const torch::Tensor& tensor, size_t factor) {
  if (factor == 1) return Dims(tensor.sizes());
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.push_back(static_cast<int64_t>(factor));
  return Dims(sizes);
}

}  // namespace

torch::ScalarType to_torch(DType dtype) {
  for (const Pair& pair : kPairs)
    if (pair.dtype == dtype) return pair.type;
  throw std::logic_error("no such DType");
}

c10d::ReduceOp to_c10d(ReduceOp op) {
  for (const OpPair& pair : kOpPairs)
    if (pair.op == op) return pair.in_c10d;
  throw UsageError("ReduceOp {} does not exist", static_cast<int>(op));
}

ReduceOp from_c10d(const c10d::ReduceOp& op) {
  for (const OpPair& pair : kOpPairs)
    if (pair.in_c10d == op.op_) return pair.op;
  throw UsageError("only sum, avg, prod, min and max are known here, not c10d's ReduceOp {}", static_cast<int>(op.op_));
}

Elements for_reduction(const torch::Tensor& dense, ReduceOp op) {
  if (dense.is_complex()) {
    if (op != ReduceOp::sum && op != ReduceOp::avg)
      throw UsageError("{} of {} numbers: complex numbers have only sum and avg", to_string(op),
                       torch::toString(dense.scalar_type()));
    const auto real = known(c10::toRealValueType(dense.scalar_type()));
    if (real) return {dense.data_ptr(), dims_of(dense, 2), *real};
  }
  const auto dtype = known(dense.scalar_type());
  if (!dtype)
    throw UsageError("no reduction of {} tensors; convert them first, e.g. to float or bfloat16",
                     torch::toString(dense.scalar_type()));
  check_reducible(*dtype, op);
  return {dense.data_ptr(), dims_of(dense, 1), *dtype};
}

size_t moving_factor(torch::ScalarType type) {
  return known(type) ? 1 : c10::elementSize(type);
}

Elements for_moving(const torch::Tensor& dense) {
  const bool as_bytes = !known(dense.scalar_type());
  return {dense.data_ptr(), dims_of(dense, as_bytes ? dense.element_size() : 1),
          known(dense.scalar_type()).value_or(DType::u8)};
}

}  // namespace trireme::comm
