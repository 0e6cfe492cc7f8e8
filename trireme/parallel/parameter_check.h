// Whether all ranks hold the same parameters, and numbers only.
//
// Averaged gradients keep equal parameters equal. What makes them differ is something that happens on one rank alone:
// weights loaded there, a step of the optimizer that the others did not make, memory that went bad. Nothing fails then,
// the ranks just train apart. A checksum finds it.
#pragma once

#include <torch/nn/module.h>

#include "trireme/comm/group.h"

namespace trireme::parallel {

/// What NaN or infinity in a parameter is.
enum class NonFinite { allowed, error };

/// Called by all members. UsageError on every one that names the first parameter which differs from rank 0's, or is not
/// finite (unless that is allowed), and the rank; `when` says what the ranks were about to do. Reads each parameter
/// once and sends 16 bytes.
void require_equal_parameters(const torch::nn::Module& module, const Group& group, const std::string& when,
                              NonFinite non_finite = NonFinite::error);

/// Of the bits, the same on every number of threads. A sharded parameter is gathered for it.
int64_t checksum_of(const torch::Tensor& parameter);

}  // namespace trireme::parallel
