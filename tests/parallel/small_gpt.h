// A GPT that is small enough to be trained in every layout, and texts for it.
#pragma once

#include "cases.h"

namespace trireme::test {

inline constexpr int64_t kWords = 24, kContext = 16, kSequence = 8, kBatch = 8;

inline models::GptOptions small(bool sequence_parallel, double dropout = 0) {
  return {.vocabulary = kWords,
          .context = kContext,
          .width = 16,
          .heads = 8,
          .layers = 2,
          .dropout = dropout,
          .sequence_parallel = sequence_parallel};
}

struct Text {
  torch::Tensor x, y;
};

// The same on every rank.
inline Text text(const World& world, int seed, int64_t batch = kBatch, int64_t length = kSequence) {
  torch::manual_seed(seed);
  const torch::Tensor tokens = torch::randint(kWords, {batch, length + 1}, torch::kLong).to(world.device());
  return {tokens.slice(1, 0, length).contiguous(), tokens.slice(1, 1).contiguous()};
}

inline void require_all_near(const Tensors& got, const Tensors& expected, double tolerance, const std::string& what) {
  require(got.size() == expected.size(), what + ": another number of tensors");
  for (size_t i = 0; i < got.size(); ++i)
    require_near(got[i].cpu(), expected[i].cpu(), tolerance, fmt::format("{}, tensor {}", what, i));
}

}  // namespace trireme::test
