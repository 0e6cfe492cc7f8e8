// PP-LCNetV2. A depthwise layer of the later stages trains as a sum of branches with kernels 5, 3 and 1, each with a
// normalisation of its own. All of that is linear in evaluation, so that one convolution with bias can do the same:
// reparameterize() folds each branch into weight and bias, pads the small kernels with zeros, and adds up.
#include <torch/torch.h>

#include <array>
#include <optional>
#include <vector>

#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace pplcnet_v2_parts {
namespace {

using nn::Activation;
using nn::ConvBnAct;

struct Stage {
  int64_t in, kernel, blocks;
  bool split_pointwise, branches, squeeze, shortcut;
};

// Each stage halves the size and doubles the width in its first block.
constexpr auto kStages = std::to_array<Stage>({
    {64, 3, 2, false, false, false, false},
    {128, 3, 2, false, false, false, false},
    {256, 5, 6, true, true, true, false},
    {512, 5, 2, false, true, false, true},
});
constexpr int64_t kStem = 32, kLast = 1024, kHead = 1280;

struct BlockShape {
  int64_t in, out, stride;
};

class BranchedDepthwise {
 public:
  /// Registers its layers in `parent` as dw_conv_list and dw_conv.
  BranchedDepthwise(torch::nn::Module& parent, const BlockShape& shape, int64_t largest) {
    const int64_t channels = shape.in;
    auto list = parent.register_module("dw_conv_list", torch::nn::ModuleList());
    for (int64_t kernel = largest; kernel > 0; kernel -= 2) {
      if (kernel == 1 && shape.stride != 1) continue;
      branches_.push_back(ConvBnAct({.in = channels,
                                     .out = channels,
                                     .kernel = kernel,
                                     .stride = shape.stride,
                                     .groups = channels,
                                     .activation = Activation::none}));
      list->push_back(branches_.back());
    }
    sum_ = parent.register_module("dw_conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, largest)
                                                                   .stride(shape.stride)
                                                                   .padding((largest - 1) / 2)
                                                                   .groups(channels)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    if (branches_.empty()) return sum_->forward(x);
    torch::Tensor y = branches_[0]->forward(x);
    for (size_t i = 1; i < branches_.size(); ++i) y = y.add_(branches_[i]->forward(x));
    return y;
  }

  void reparameterize(torch::nn::Module& parent) {
    if (branches_.empty()) return;
    const torch::NoGradGuard no_grad;
    sum_->weight.zero_();
    sum_->bias.zero_();
    for (const ConvBnAct& branch : branches_) {
      const auto [weight, bias] = branch->folded();
      const int64_t margin = (sum_->weight.size(2) - weight.size(2)) / 2;
      sum_->weight.add_(torch::constant_pad_nd(weight, {margin, margin, margin, margin}));
      sum_->bias.add_(bias);
    }
    branches_.clear();
    parent.unregister_module("dw_conv_list");
  }

 private:
  std::vector<ConvBnAct> branches_;  // empty: sum_ does the work
  torch::nn::Conv2d sum_{nullptr};
};

/// Pointwise layers: one, or two with half the width between them.
torch::nn::Sequential pointwise(torch::nn::Module& parent, const BlockShape& shape, bool split) {
  torch::nn::Sequential layers;  // for forward(); registered are its layers, in `parent`
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    layers->push_back(parent.register_module(name, ConvBnAct({.in = in, .out = out})));
  };
  if (split) {
    add("pw_conv_1", shape.in, shape.out / 2);
    add("pw_conv_2", shape.out / 2, shape.out);
  } else {
    add("pw_conv", shape.in, shape.out);
  }
  return layers;
}

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const Stage& stage, const BlockShape& shape)
      : shortcut_(stage.shortcut && shape.stride == 1 && shape.in == shape.out) {
    const int64_t in = shape.in;
    if (stage.branches)
      branched_.emplace(*this, shape, stage.kernel);
    else
      dw_ = register_module(
          "dw_conv", ConvBnAct({.in = in, .out = in, .kernel = stage.kernel, .stride = shape.stride, .groups = in}));
    if (stage.squeeze)
      se_ = register_module("se", nn::SqueezeExcite({.channels = in,
                                                     .squeeze = in / 4,
                                                     .gate = Activation::sigmoid,
                                                     .squeeze_name = "conv1",
                                                     .excite_name = "conv2"}));
    pw_ = pointwise(*this, shape, stage.split_pointwise);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = branched_ ? branched_->forward(x).relu_() : dw_->forward(x);
    if (se_) y = se_->forward(y);
    y = pw_->forward(y);
    return shortcut_ ? y + x : y;
  }

  void reparameterize() {
    if (branched_) branched_->reparameterize(*this);
  }

 private:
  bool shortcut_;
  std::optional<BranchedDepthwise> branched_;
  ConvBnAct dw_{nullptr};
  nn::SqueezeExcite se_{nullptr};
  torch::nn::Sequential pw_;
};
TORCH_MODULE(Block);

torch::nn::Sequential stem(const Settings& settings) {
  constexpr Stage kPlain = {kStem, 3, 1, false, false, false, false};
  return torch::nn::Sequential(
      ConvBnAct({.in = settings.in_channels, .out = kStem, .kernel = 3, .stride = settings.stem_stride()}),
      Block(kPlain, BlockShape{kStem, 2 * kStem, 1}));
}

class PPLCNetV2 : public Classifier {
 public:
  explicit PPLCNetV2(const Settings& settings)
      : Classifier("PPLCNetV2_base"),
        stem_(register_module("stem", stem(settings))),
        dropout_(settings.dropout, nn::DropoutScale::in_evaluation) {
    auto list = register_module("stages", torch::nn::ModuleList());
    for (const Stage& stage : kStages) list->push_back(stages_.emplace_back(blocks(stage)));
    last_conv_ = register_module("last_conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(kLast, kHead, 1).bias(false)));
    register_module("dropout", dropout_);
    fc_ = register_module("fc", torch::nn::Linear(kHead, settings.class_num));
    nn::kaiming_convs(*this, nn::Fan::in);
    nn::xavier_linears(*this);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = stem_->forward(x);
    for (auto& stage : stages_) x = stage->forward(x);
    x = last_conv_->forward(torch::adaptive_avg_pool2d(x, {1, 1})).relu_();
    return fc_->forward(torch::flatten(dropout_->forward(x), 1));
  }

  void reparameterize() override {
    for (const auto& module : modules())
      if (auto* block = module->as<BlockImpl>()) block->reparameterize();
  }

 private:
  static torch::nn::Sequential blocks(const Stage& stage) {
    torch::nn::Sequential row(Block(stage, BlockShape{stage.in, 2 * stage.in, 2}));
    for (int64_t i = 1; i < stage.blocks; ++i) row->push_back(Block(stage, BlockShape{2 * stage.in, 2 * stage.in, 1}));
    return row;
  }

  torch::nn::Sequential stem_;
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Conv2d last_conv_{nullptr};
  nn::Dropout dropout_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace
}  // namespace pplcnet_v2_parts

ClassifierPtr pplcnet_v2_base(const ModelOptions& options) {
  return std::make_shared<pplcnet_v2_parts::PPLCNetV2>(settle("PPLCNetV2_base", options, {.dropout = 0.2}));
}

}  // namespace trireme::models
