// The samples of one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "trireme/data/order/mix.h"

namespace trireme::data {

struct Pick {
  std::vector<int64_t> indices;  ///< of the samples
  std::vector<uint64_t> draws;   ///< one for each sample, for what is random about it: see mix.h
  uint64_t draw = 0;             ///< for what is random about the batch as a whole
  int64_t image_size = 0;        ///< height and width its images are to have; 0: as the dataset gives them
  bool leave_out_bad = false;    ///< a sample that cannot be read is left out of the batch; else another replaces it

  /// The batch's draw comes from its samples', so that it differs from rank to rank.
  static Pick of(std::vector<int64_t> indices, std::vector<uint64_t> draws, int64_t image_size = 0) {
    uint64_t draw = mix(draws.size());
    for (const uint64_t one : draws) draw = mix(draw, one);
    return {std::move(indices), std::move(draws), draw, image_size, false};
  }

  /// One sample of it, alone.
  Pick only(size_t i) const { return {{indices[i]}, {draws[i]}, draws[i], image_size, leave_out_bad}; }
};

}  // namespace trireme::data
