// Small networks of the kinds that users write, for tests.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <utility>

namespace trireme::deploy {

/// Anything that makes rows of 12 numbers of the images, and a layer.
struct OwnNetImpl : torch::nn::Module {
  explicit OwnNetImpl(std::function<torch::Tensor(torch::Tensor)> middle) : middle_(std::move(middle)) {
    register_module("fc", fc_);
  }
  torch::Tensor forward(torch::Tensor x) { return fc_->forward(middle_(x)); }
  std::function<torch::Tensor(torch::Tensor)> middle_;
  torch::nn::Linear fc_{12, 2};
};
TORCH_MODULE(OwnNet);

inline torch::Tensor flat(const torch::Tensor& x) {
  return x.flatten(1);
}

/// As attention splits its heads: the batch becomes the second dimension. With two pixels the traced batch is also the
/// number of pixels.
inline torch::Tensor split_heads(const torch::Tensor& x) {
  return x.flatten(2).permute({2, 0, 1}).reshape({x.size(2) * x.size(3), -1, 3, 2});
}

/// A convolution by hand, with torch's short form of stride and padding, and what comes after it.
struct ShortNetImpl : torch::nn::Module {
  using Body = std::function<torch::Tensor(ShortNetImpl&, torch::Tensor)>;
  explicit ShortNetImpl(Body body) : body_(std::move(body)) {}
  torch::Tensor forward(torch::Tensor x) { return body_(*this, x).flatten(1); }
  Body body_;
  torch::Tensor large = register_parameter("large", torch::randn({4, 3, 3, 3}));
  torch::Tensor small = register_parameter("small", torch::randn({4, 3, 1, 1}));
  torch::Tensor mean = register_buffer("mean", torch::randn({4}));
  torch::Tensor variance = register_buffer("variance", torch::rand({4}) + 0.5);
  torch::Tensor log_scale = register_parameter("log_scale", torch::randn({4}));
};
TORCH_MODULE(ShortNet);

}  // namespace trireme::deploy
