// A language model of GPT's shape whose weights are a function of their places alone, so that programs in other languages
// make the same one (bench/hybrid/fsdp_peer.py).
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace trireme::test {

struct GptShape {
  int64_t width = 64;
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t words = 64;
  int64_t length = 16;
};

struct GptBlock : torch::nn::Module {
  explicit GptBlock(const GptShape& shape)
      : heads(shape.heads),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width})))),
        qkv(register_module("qkv", torch::nn::Linear(shape.width, 3 * shape.width))),
        out(register_module("out", torch::nn::Linear(shape.width, shape.width))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width})))),
        up(register_module("up", torch::nn::Linear(shape.width, 4 * shape.width))),
        down(register_module("down", torch::nn::Linear(4 * shape.width, shape.width))) {}

  torch::Tensor forward(torch::Tensor x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    auto parts = qkv(norm1(x)).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    torch::Tensor mixed = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    x = x + out(mixed.transpose(1, 2).reshape({batch, length, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }

  int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv, out;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up, down;
};

struct GptStack : torch::nn::Module {
  explicit GptStack(const GptShape& shape)
      : embed(register_module("embed", torch::nn::Embedding(shape.words, shape.width))),
        head(register_module("head", torch::nn::Linear(shape.width, shape.words))) {
    for (int64_t i = 0; i < shape.layers; ++i) blocks->push_back(GptBlock(shape));
    register_module("blocks", blocks);
    set_weights();
  }

  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor x = embed(tokens);
    for (const auto& block : *blocks) x = block->as<GptBlock>()->forward(x);
    return head(x);
  }

  int64_t parameter_count() const {
    int64_t count = 0;
    for (const torch::Tensor& parameter : parameters()) count += parameter.numel();
    return count;
  }

  torch::nn::Embedding embed;
  torch::nn::Linear head;
  torch::nn::ModuleList blocks;

 private:
  void set_weights() {
    const torch::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {
      torch::Tensor& parameter = item.value();
      if (item.key().find("norm") != std::string::npos) continue;  // ones and zeros
      const torch::Tensor places = torch::arange(parameter.numel(), torch::kDouble);
      parameter.copy_((places * 0.7).sin().mul(0.03).view(parameter.sizes()));
    }
  }
};

/// The same tokens everywhere: row r of step s.
inline torch::Tensor gpt_tokens(const GptShape& shape, int64_t rows, int64_t step) {
  const torch::Tensor places = torch::arange(rows * (shape.length + 1), torch::kLong);
  return ((places * 7 + step * 13 + places.square() % 11) % shape.words).view({rows, shape.length + 1});
}

inline torch::Tensor gpt_loss(const torch::Tensor& logits, const torch::Tensor& tokens) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), tokens.narrow(1, 1, tokens.size(1) - 1).flatten());
}

}  // namespace trireme::test
