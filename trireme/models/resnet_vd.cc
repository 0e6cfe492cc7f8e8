// ResNet50_vd, the teacher of the distillation recipes, with PaddleClas' names. Against ResNet50: the 7x7 convolution
// at the start is three 3x3 ones, and a shortcut that halves the size averages 2x2 pixels instead of dropping three.
#include <torch/torch.h>

#include <array>

#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace resnet_vd_parts {
namespace {

using nn::Activation;
using nn::ConvBnAct;

constexpr int64_t kExpansion = 4;

struct Stage {
  int64_t width, blocks, stride;
};
constexpr auto kStages = std::to_array<Stage>({{64, 3, 1}, {128, 4, 2}, {256, 6, 2}, {512, 3, 2}});

enum class Shortcut { identity, conv, pool_conv };

struct BlockShape {
  int64_t in, width, stride;
  Shortcut shortcut;
};

class VdBlockImpl : public torch::nn::Module {
 public:
  explicit VdBlockImpl(const BlockShape& shape) : pools_(shape.shortcut == Shortcut::pool_conv) {
    const auto [in, width, stride, shortcut] = shape;
    const int64_t out = width * kExpansion;
    conv0_ = register_module("conv0", ConvBnAct({.in = in, .out = width}));
    conv1_ = register_module("conv1", ConvBnAct({.in = width, .out = width, .kernel = 3, .stride = stride}));
    conv2_ = register_module("conv2", ConvBnAct({.in = width, .out = out, .activation = Activation::none}));
    if (shortcut != Shortcut::identity)
      short_ = register_module("short", ConvBnAct({.in = in, .out = out, .activation = Activation::none}));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = conv2_->forward(conv1_->forward(conv0_->forward(x)));
    return y.add(shortcut(x)).relu_();
  }

 private:
  torch::Tensor shortcut(const torch::Tensor& x) {
    if (!short_) return x;
    // Of an odd size the last pixel has no partner and stays itself.
    return short_->forward(pools_ ? torch::avg_pool2d(x, 2, 2, 0, /*ceil_mode=*/true, /*count_include_pad=*/false) : x);
  }

  bool pools_;
  ConvBnAct conv0_{nullptr}, conv1_{nullptr}, conv2_{nullptr}, short_{nullptr};
};
TORCH_MODULE(VdBlock);

torch::nn::Sequential stem(const Settings& settings) {
  return torch::nn::Sequential(
      ConvBnAct({.in = settings.in_channels, .out = 32, .kernel = 3, .stride = settings.stem_stride()}),
      ConvBnAct({.in = 32, .out = 32, .kernel = 3}), ConvBnAct({.in = 32, .out = 64, .kernel = 3}));
}

torch::nn::Sequential all_blocks() {
  torch::nn::Sequential blocks;
  int64_t in = kStages[0].width;
  for (const auto& [width, count, stride] : kStages)
    for (int64_t i = 0; i < count; ++i) {
      const Shortcut first = stride == 1 ? Shortcut::conv : Shortcut::pool_conv;
      blocks->push_back(VdBlock(BlockShape{in, width, i == 0 ? stride : 1, i == 0 ? first : Shortcut::identity}));
      in = width * kExpansion;
    }
  return blocks;
}

class ResNetVd : public Classifier {
 public:
  explicit ResNetVd(const Settings& settings)
      : Classifier("ResNet50_vd"),
        small_input_(settings.small_input),
        stem_(register_module("stem", stem(settings))),
        blocks_(register_module("blocks", all_blocks())),
        fc_(register_module("fc", torch::nn::Linear(kStages.back().width * kExpansion, settings.class_num))) {
    nn::kaiming_convs(*this, nn::Fan::in_all_groups);
    const torch::NoGradGuard no_grad;
    fc_->bias.zero_();  // the weight is uniform in +-1 / sqrt(inputs) already, by torch's own rule
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = stem_->forward(x);
    if (!small_input_) x = torch::max_pool2d(x, 3, 2, 1);
    x = torch::adaptive_avg_pool2d(blocks_->forward(x), {1, 1});
    return fc_->forward(torch::flatten(x, 1));
  }

 private:
  bool small_input_;
  torch::nn::Sequential stem_, blocks_;
  torch::nn::Linear fc_;
};

}  // namespace
}  // namespace resnet_vd_parts

ClassifierPtr resnet50_vd(const ModelOptions& options) {
  return std::make_shared<resnet_vd_parts::ResNetVd>(settle("ResNet50_vd", options));
}

}  // namespace trireme::models
