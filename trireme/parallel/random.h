// Random numbers of ranks that split one model: equal where all of them have the same activations, different where each has
// a part.
//
//   torch::manual_seed(1);                                  // on every rank: the same initial weights
//   auto net = models::gpt(options, mesh["model"]);
//   seed_along(mesh["data"], 1);                            // from here on: different along data, equal along model
//   …
//   x = torch::dropout(x, 0.1, true);                       // x is the same on all ranks of mesh["model"]
//   {
//     const RankRandom own(mesh["model"]);
//     y = torch::dropout(y, 0.1, true);                     // y is this rank's part
//   }
//
// RankRandom keeps no state: it draws one number, which all ranks of the group have in common, and makes a seed of it and
// of the rank. So checkpoint() (recompute) draws the same again, and Checkpoint saves and restores all there is: torch's
// generators. After a restore in another layout call seed_along() again: ranks of one line may have got different states.
//
// All of torch's default generators are meant: the CPU's, and that of the current GPU. For one thread at a time.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "trireme/comm/group.h"

namespace trireme {

/// Seeds this process by the seed and by its rank in the group: ranks that have the same place there draw the same numbers.
void seed_along(const Group& group, uint64_t seed);

namespace detail {

/// UsageError on every rank unless all ranks of the group would draw the same random numbers on this device; takes none.
/// Collective. `consequence` and `advice` are the rest of the message.
void require_same_random(const Group& group, torch::Device device, std::string_view consequence,
                         std::string_view advice);

/// One number of the CPU's generator.
uint64_t draw_random();

/// While it lives, random numbers come from a seed made of both numbers. Then they go on as before.
class SeededRandom {
 public:
  SeededRandom(uint64_t seed, uint64_t number);
  ~SeededRandom();
  SeededRandom(const SeededRandom&) = delete;
  SeededRandom& operator=(const SeededRandom&) = delete;

 private:
  struct Before;
  std::unique_ptr<Before> before_;
};

}  // namespace detail

/// While it lives, each rank of the group draws numbers of its own. Takes one number that all ranks have in common. In a
/// group of one rank it does nothing.
class RankRandom {
 public:
  explicit RankRandom(const Group& group);

 private:
  std::unique_ptr<detail::SeededRandom> own_;
};

}  // namespace trireme
