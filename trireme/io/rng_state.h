// The state of torch's random number generators, so that a resumed run draws what an unbroken one would have drawn.
//
//   snapshot.tensors["rng"] = rng_state();
//   …
//   set_rng_state(newest->tensors.at("rng"));
//
// The default generators of the CPU ("cpu") and of each visible CUDA device ("cuda:0" …), as the process sees them.
// Any thread; each generator is locked while it is read or set.
#pragma once

#include "trireme/io/safetensors.h"

namespace trireme::io {

TensorMap rng_state();

/// States of devices that are not here are ignored; devices without a state keep theirs. Throws UsageError when the
/// CPU's is missing or a state is not valid.
void set_rng_state(const TensorMap& states);

}  // namespace trireme::io
