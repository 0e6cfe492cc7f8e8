// What every rank is known to give, in every type and layout, and what must come out of it: the plain reference that
// the collectives are compared with.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/collectives.h"

namespace trireme::ranks {

/// A result that is not what it must be. The text says of which operation and where.
struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Layout { contiguous, transposed, channels_last, strided, offset, leaf };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::channels_last,
                                      Layout::strided,    Layout::offset,     Layout::leaf};
inline constexpr torch::ScalarType kTypes[] = {torch::kFloat, torch::kDouble, torch::kHalf,        torch::kBFloat16,
                                               torch::kChar,  torch::kByte,   torch::kShort,       torch::kInt,
                                               torch::kLong,  torch::kBool,   torch::kComplexFloat};
inline constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min, ReduceOp::max};

const char* to_string(Layout layout);
/// Whether the type has this reduction; where not, the collectives must refuse.
bool has_reduction(torch::ScalarType type, ReduceOp op);

using Shape = std::vector<int64_t>;

/// Small numbers that depend on every argument; dense. Integers have both signs, floats have fractions.
torch::Tensor contribution(int rank, uint64_t seed, const Shape& shape, torch::ScalarType type);
/// The same values with other strides: as far as the shape allows it, and a leaf only of a type with gradients.
torch::Tensor in_layout(Layout layout, const torch::Tensor& values);
/// The bytes of an object, from none to a few thousand.
std::string object_of(int rank, uint64_t seed);

/// What a reduction of these must be, and by how much each element may be off.
struct Reduced {
  torch::Tensor values;
  torch::Tensor slack;  ///< undefined: not at all
};
/// `roundings`: how often an element may be rounded on its way, 1 for a backend that adds in a wider type.
Reduced reduce_here(const std::vector<torch::Tensor>& all, ReduceOp op, int roundings);

/// Throws Mismatch with the first element that differs.
void expect_equal(const std::string& what, const torch::Tensor& got, const torch::Tensor& wanted);
void expect_close(const std::string& what, const torch::Tensor& got, const Reduced& wanted);
void expect_equal(const std::string& what, const std::string& got, const std::string& wanted);

/// The elements of a tensor in logical order, as bytes.
std::string bytes_of(const torch::Tensor& tensor);

}  // namespace trireme::ranks
