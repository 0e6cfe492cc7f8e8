// PowerSGD: gradients of matrices are sent as products of two thin matrices (Vogels et al., arXiv 1905.13727).
#pragma once

#include "trireme/parallel/gradient_hook.h"

namespace trireme::parallel {

/// Per matrix M (n x m, `rank` < both): P = M Q, averaged and made orthogonal; Q = M^T P, averaged; M becomes P Q^T and
/// what was lost is added to the next gradient. Vectors, and matrices that would not shrink, are averaged as they are.
/// Q starts as the same random numbers on every rank and is kept from step to step.
GradientHook power_sgd(int rank);

}  // namespace trireme::parallel
