// Ways of being fast that can be switched off one by one, to find out which of them a figure or a fault comes from.
//
//   if (is_on(Lever::blocks)) …
//
// TRIREME_WITHOUT lists those that are off. Larger levers have a variable each: TRIREME_FUSED, TRIREME_GRAPH,
// TRIREME_SHARED_TENSORS, TRIREME_CHANNELS_LAST, TRIREME_SIMD.
#pragma once

#include <cstdint>

namespace trireme {

enum class Lever : uint8_t {
  blocks,            ///< a whole inverted residual block in one fused pass, instead of its normalisations one by one
  fused_optimizers,  ///< all parameters in one call, instead of one after the other
  streaming_stores,  ///< large results are written past the caches
  scaled_jpeg,       ///< a crop that will shrink is decoded at a fraction of its size
};

/// Reads the environment: ask once for each piece of work, not for each element. UsageError when TRIREME_WITHOUT names
/// something else.
bool is_on(Lever lever);

}  // namespace trireme
