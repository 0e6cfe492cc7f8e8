// The position of a sampler: what another run needs to go on with exactly the samples that were not seen.
//
//   std::string text = to_text(sampler.state());        // "sampler 1 order=paddle shuffle=1 seed=0 samples=60000 …"
//   other.load_state(parse_sampler_state(text));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/order/epoch_plan.h"

namespace trireme::data {

/// The same on every rank of a world that runs in step: save rank 0's, load it everywhere.
struct SamplerState {
  Order order = Order::paddle;
  bool shuffle = false;
  uint64_t seed = 0;
  int64_t samples = 0;
  int64_t epoch = 0;
  std::vector<Stage> stages = {};  ///< of this epoch; empty: nothing consumed yet

  /// Samples consumed in this epoch by all ranks together, padding included.
  int64_t consumed() const;
  bool operator==(const SamplerState&) const = default;
};

/// One line of text, for a checkpoint's manifest.
std::string to_text(const SamplerState& state);
/// The reverse. Throws UsageError that names the part it does not understand.
SamplerState parse_sampler_state(std::string_view text);

}  // namespace trireme::data
