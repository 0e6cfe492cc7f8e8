// Models that the cases of ShardedDataParallel split.
#pragma once

#include "cases.h"

namespace trireme::test {

// Convolution, normalisation, an embedding and a weight that is used twice: what parameters look like in practice. Units
// of 1 MB cut it into several.
struct Mixed : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& words) {
    torch::Tensor image = torch::relu(norm(conv(x))).flatten(1);
    torch::Tensor text = embed(words).mean(1);
    torch::Tensor both = torch::tanh(wide(torch::cat({image, text}, 1)));
    both = torch::tanh(deep(both) + both);
    return torch::matmul(narrow(both), embed->weight.t());
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)));
  torch::nn::GroupNorm norm = register_module("norm", torch::nn::GroupNorm(torch::nn::GroupNormOptions(2, 4)));
  torch::nn::Embedding embed = register_module("embed", torch::nn::Embedding(30, 24));
  torch::nn::Linear wide = register_module("wide", torch::nn::Linear(144 + 24, 700));
  torch::nn::Linear deep = register_module("deep", torch::nn::Linear(700, 700));
  torch::nn::Linear narrow = register_module("narrow", torch::nn::Linear(700, 24));
};

// Three layers of which the middle one is not always used.
struct Detour : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(first(x));
    if (through) x = torch::tanh(middle(x));
    return last(x);
  }
  bool through = true;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 8));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(8, 8));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 4));
};

inline torch::Tensor input(const World& world, at::IntArrayRef sizes, int seed) {
  return numbers(sizes, seed).to(world.device());
}

inline constexpr Shard kShards[] = {Shard::optimizer, Shard::gradients, Shard::parameters};

}  // namespace trireme::test
