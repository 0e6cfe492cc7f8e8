// A network that means nothing and uses the operators that image classifiers are made of; operator_cases.h has the
// others.
#pragma once

#include <torch/torch.h>

class EveryOperatorImpl : public torch::nn::Module {
 public:
  explicit EveryOperatorImpl(int64_t classes) : last_(8 * 22, classes) {
    register_module("norm", norm_);
    register_module("conv", conv_);
    register_module("wide", wide_);
    register_module("no_bias", no_bias_);
    register_module("last", last_);
  }

  /// Of 3 x 21 x 21: odd, so that pools round.
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = norm_->forward(images);  // alone: it cannot be folded
    x = torch::constant_pad_nd(x, {1, 2, 0, 1}, 0.5);
    x = conv_->forward(x) * 1.5;
    x = torch::cat({torch::relu(x), torch::hardswish(x), torch::silu(x), torch::gelu(x)}, 1);
    x = torch::max_pool2d(x, {3, 2}, {2, 2}, {1, 0}, 1, /*ceil_mode=*/true) - pooled(x);
    x = activations(x);
    x = torch::adaptive_avg_pool2d(x, {11, 2}) * torch::adaptive_avg_pool2d(x, {1, 1});
    x = shapes(x);
    return last_->forward(x.reshape({x.size(0), -1})).tanh();
  }

 private:
  static torch::Tensor pooled(const torch::Tensor& x) {
    const torch::Tensor counted = torch::avg_pool2d(x, {3, 2}, {2, 2}, {1, 0}, /*ceil_mode=*/false);
    const torch::Tensor up = torch::avg_pool2d(x, {3, 2}, {2, 2}, {1, 0}, /*ceil_mode=*/true, /*count_include=*/false);
    return up + 0.1 * counted.mean({2, 3}, /*keepdim=*/true);
  }

  static torch::Tensor activations(const torch::Tensor& x) {
    const torch::Tensor y = torch::leaky_relu(x, 0.1) + torch::hardtanh(x, -0.5, 2) + torch::relu6(x * 4) / 4;
    const torch::Tensor z = torch::sqrt(x.abs() + 1).log() + torch::sigmoid(-x) + torch::hardsigmoid(x);
    return y.add(z, 0.5).clamp(-1.5, {}).clamp(-9, 2) + torch::exp(-x.abs());
  }

  /// N x 8 x 11 x 2 -> N x 8 x 22
  torch::Tensor shapes(torch::Tensor x) {
    x = x.flatten(2).permute({0, 2, 1});                            // N x 22 x 8
    x = no_bias_->forward(wide_->forward(x)).transpose(1, -1);      // N x 8 x 22
    const torch::Tensor mix = torch::matmul(x, x.transpose(1, 2));  // N x 8 x 8
    x = torch::matmul(mix.softmax(-1), x) - mix.log_softmax(2).mean({2}).unsqueeze(2).div(8);
    return x.view({-1, 8, 22, 1}).squeeze(3);
  }

  torch::nn::BatchNorm2d norm_{3};
  torch::nn::Conv2d conv_{torch::nn::Conv2dOptions(3, 2, {3, 1}).dilation(2).padding({1, 0})};
  torch::nn::Linear wide_{8, 5};
  torch::nn::Linear no_bias_{torch::nn::LinearOptions(5, 8).bias(false)};
  torch::nn::Linear last_;
};
TORCH_MODULE(EveryOperator);
