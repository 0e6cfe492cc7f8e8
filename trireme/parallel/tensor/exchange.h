// Activations that ranks of a group exchange in forward, and their gradients in backward.
//
//   x = move(x, {Move::nothing, Move::sum}, group);       // every rank has x; each computes a part from it
//   y = move(y, {Move::sum, Move::nothing}, group);       // every rank has a summand of y
//
// In backward the second move is made with the gradient. Which pairs belong together:
//
//   forward           backward
//   nothing           sum                 a tensor that all have, used by all for different parts
//   sum               nothing             summands become the tensor that all have
//   gather            part                parts become the tensor that all have
//   part              gather              all have it, each goes on with its part
//   gather            reduce_scatter      parts become a tensor that each uses for different parts
//   reduce_scatter    gather              summands become parts of the sum
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "trireme/comm/group.h"

namespace trireme::parallel {

enum class Move {
  nothing,
  sum,             ///< over the ranks
  gather,          ///< the ranks' tensors one after the other, along `dim`
  part,            ///< this rank's of as many equal parts along `dim`
  reduce_scatter,  ///< this rank's part of the sum
};

struct Moves {
  Move forward;
  Move backward;
  int64_t dim = -1;
};

/// Called by every rank of the group at the same places, and so is backward. UsageError for a size that the ranks do not
/// divide.
torch::Tensor move(const torch::Tensor& tensor, const Moves& moves, const Group& group);

/// x W^T + b, where every rank has x and its own rows of W and b. In backward the sum of the gradients of x travels while
/// the gradient of W is computed.
torch::Tensor column_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                            const Group& group);

/// The dimension along which a sequence is split: [batch, sequence, width].
inline constexpr int64_t kSequence = -2;

/// The same, where each rank has its part of x along the sequence; y is of the whole sequence. Only the part is kept for
/// backward, which gathers x again while it computes the gradient of x.
torch::Tensor sequence_column_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                     const Group& group);

/// A part of a sequence ends here. UsageError if a parameter was used on it whose gradient is not summed over the ranks
/// (move {nothing, sum}): each rank would step it by its own part of the sequence.
void require_summed_gradients(const torch::Tensor& part, const Group& group);

}  // namespace trireme::parallel
