// Changes of a traced graph that leave its outputs as they are and save work: what is linear in inference becomes one
// convolution.
#pragma once

#include "trireme/deploy/export/traced.h"

namespace trireme::deploy {

/// A convolution and the batch normalisation that alone follows it become a convolution with a bias. Computed in
/// double. Others stay; they are rare.
void fold_batch_norms(Traced& traced);

/// A sum of convolutions of the same input (the branches of re-parameterisable networks) becomes one with the largest
/// kernel. After fold_batch_norms().
void merge_branches(Traced& traced);

}  // namespace trireme::deploy
