// PP-HGNet: blocks of 3x3 convolutions in a row, the outputs of all of which a 1x1 convolution joins.
#include <torch/torch.h>

#include <array>
#include <vector>

#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/fused/gpu_layers.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace pphgnet_parts {
namespace {

using nn::Activation;
using nn::ConvBnAct;

struct Stage {
  int64_t in, mid, out, blocks;
};

struct Variant {
  const char* name;
  std::array<int64_t, 3> stem;
  int64_t layers;  // 3x3 convolutions in a block
  std::array<Stage, 4> stages;
  double dropout;
};

constexpr Variant kTiny = {"PPHGNet_tiny",
                           {48, 48, 96},
                           5,
                           {{{96, 96, 224, 1}, {224, 128, 448, 1}, {448, 160, 512, 2}, {512, 192, 768, 1}}},
                           0.0};
constexpr Variant kSmall = {"PPHGNet_small",
                            {64, 64, 128},
                            6,
                            {{{128, 128, 256, 1}, {256, 160, 512, 1}, {512, 192, 768, 2}, {768, 224, 1024, 1}}},
                            0.0};
constexpr Variant kBase = {"PPHGNet_base",
                           {96, 96, 160},
                           7,
                           {{{160, 192, 320, 1}, {320, 224, 640, 2}, {640, 256, 960, 3}, {960, 288, 1280, 2}}},
                           0.2};
constexpr int64_t kHead = 2048;

/// Squeeze-and-excitation with a single layer of full width.
class EffectiveSqueezeImpl : public torch::nn::Module {
 public:
  explicit EffectiveSqueezeImpl(int64_t channels)
      : conv_(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 1)))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return x * torch::sigmoid(conv_->forward(torch::adaptive_avg_pool2d(x, {1, 1})));
  }

 private:
  torch::nn::Conv2d conv_;
};
TORCH_MODULE(EffectiveSqueeze);

struct BlockShape {
  int64_t in, mid, out, layers;
  bool shortcut;
};

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const BlockShape& shape) : shortcut_(shape.shortcut) {
    auto list = register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < shape.layers; ++i) {
      layers_.push_back(ConvBnAct({.in = i == 0 ? shape.in : shape.mid, .out = shape.mid, .kernel = 3}));
      list->push_back(layers_.back());
    }
    join_ =
        register_module("aggregation_conv", ConvBnAct({.in = shape.in + shape.layers * shape.mid, .out = shape.out}));
    attention_ = register_module("att", EffectiveSqueeze(shape.out));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> outputs = {x};
    for (auto& layer : layers_) outputs.push_back(layer->forward(outputs.back()));
    const torch::Tensor y = attention_->forward(join_->forward(torch::cat(outputs, 1)));
    return shortcut_ ? y + x : y;
  }

 private:
  bool shortcut_;
  std::vector<ConvBnAct> layers_;
  ConvBnAct join_{nullptr};
  EffectiveSqueeze attention_{nullptr};
};
TORCH_MODULE(Block);

/// All but the first stage begin by halving the size.
class StageModuleImpl : public torch::nn::Module {
 public:
  StageModuleImpl(const Stage& stage, int64_t layers, bool downsamples) {
    const auto [in, mid, out, count] = stage;
    if (downsamples)
      downsample_ = register_module(
          "downsample",
          ConvBnAct({.in = in, .out = in, .kernel = 3, .stride = 2, .groups = in, .activation = Activation::none}));
    for (int64_t i = 0; i < count; ++i)
      blocks_->push_back(Block(BlockShape{i == 0 ? in : out, mid, out, layers, /*shortcut=*/i > 0}));
    register_module("blocks", blocks_);
  }

  torch::Tensor forward(const torch::Tensor& x) { return blocks_->forward(downsample_ ? downsample_->forward(x) : x); }

 private:
  ConvBnAct downsample_{nullptr};
  torch::nn::Sequential blocks_;
};
TORCH_MODULE(StageModule);

class PPHGNet : public Classifier {
 public:
  PPHGNet(const Variant& variant, const Settings& settings)
      : Classifier(variant.name),
        small_input_(settings.small_input),
        dropout_(settings.dropout, nn::DropoutScale::in_evaluation) {
    int64_t in = settings.in_channels;
    for (const int64_t out : variant.stem) {
      stem_->push_back(
          ConvBnAct({.in = in, .out = out, .kernel = 3, .stride = stem_->is_empty() ? settings.stem_stride() : 1}));
      in = out;
    }
    for (const Stage& stage : variant.stages)
      stages_->push_back(StageModule(stage, variant.layers, /*downsamples=*/!stages_->is_empty()));
    const int64_t last = variant.stages.back().out;
    register_module("stem", stem_);
    register_module("stages", stages_);
    last_conv_ = register_module("last_conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(last, kHead, 1).bias(false)));
    register_module("dropout", dropout_);
    fc_ = register_module("fc", torch::nn::Linear(kHead, settings.class_num));
    nn::kaiming_convs(*this, nn::Fan::in);
    nn::xavier_linears(*this);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = stem_->forward(x);
    if (!small_input_) x = nn::fused::gpu::max_pool(x, 3, 2, 1);
    x = torch::adaptive_avg_pool2d(stages_->forward(x), {1, 1});
    x = last_conv_->forward(x).relu_();
    return fc_->forward(torch::flatten(dropout_->forward(x), 1));
  }

 private:
  bool small_input_;
  torch::nn::Sequential stem_, stages_;
  torch::nn::Conv2d last_conv_{nullptr};
  nn::Dropout dropout_;
  torch::nn::Linear fc_{nullptr};
};

ClassifierPtr make(const Variant& variant, const ModelOptions& options) {
  return std::make_shared<PPHGNet>(variant, settle(variant.name, options, {.dropout = variant.dropout}));
}

}  // namespace
}  // namespace pphgnet_parts

ClassifierPtr pphgnet_tiny(const ModelOptions& options) {
  return pphgnet_parts::make(pphgnet_parts::kTiny, options);
}
ClassifierPtr pphgnet_small(const ModelOptions& options) {
  return pphgnet_parts::make(pphgnet_parts::kSmall, options);
}
ClassifierPtr pphgnet_base(const ModelOptions& options) {
  return pphgnet_parts::make(pphgnet_parts::kBase, options);
}

}  // namespace trireme::models
