// How a reduction crosses from host to host, and what is left to do for an average over all ranks:
//
//   float, double           sums inside the hosts, sums across, one division at the end;
//   half, bfloat16, even    averages inside, averages across: no sum that could be too large for the type;
//   half, bfloat16, uneven  averages inside; across, in float, each times the number of its host's ranks, then divided.
//
// Every other operation stays what it is, inside and across.
//
//   Crossing crossing(topology, host, DType::f32, ReduceOp::avg);
//   inner.reduce(data, n, DType::f32, crossing.inner_op(), 0);
//   std::byte* crossed = crossing.begin(data, n);
//   across.all_reduce(crossed, n, crossing.dtype(), crossing.op());
//   crossing.end(crossed, data, n);
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/engine/dtype.h"
#include "trireme/comm/engine/topology.h"

namespace trireme::comm {

class Crossing {
 public:
  Crossing(const Topology& topology, int host, DType dtype, ReduceOp op);

  ReduceOp inner_op() const { return inner_op_; }
  ReduceOp op() const { return weighted_ ? ReduceOp::sum : inner_op_; }
  DType dtype() const { return weighted_ ? DType::f32 : stored_; }

  /// What to give to the collective across: `data` itself, or a copy in float that lives as long as this.
  std::byte* begin(std::byte* data, size_t elements);
  /// Makes of the collective's result, which may be `data`, what the caller wants.
  void end(const std::byte* result, std::byte* data, size_t elements) const;

 private:
  const DType stored_;
  const float ranks_;  // of the group
  const float host_ranks_;
  const bool divides_;
  const bool weighted_;
  const ReduceOp inner_op_;
  std::vector<float> floats_;
};

/// Divides every element. Only floating types; half and bfloat16 are divided in float.
void divide(std::byte* data, size_t elements, DType dtype, float divisor);
/// Half or bfloat16 to float and back. No alignment is needed.
void widen(DType dtype, const std::byte* from, size_t elements, float* to);
void narrow(DType dtype, const float* from, size_t elements, std::byte* to);

}  // namespace trireme::comm
