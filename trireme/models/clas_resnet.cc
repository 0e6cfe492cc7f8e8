// PaddleClas' ResNets, with its names. Against torchvision's, ResNet18 and 34 have a convolution on the first shortcut
// too. Variant D (_vd, the teachers of the distillation recipes): the 7x7 convolution at the start is three 3x3 ones, and
// a shortcut that halves the size averages 2x2 pixels instead of dropping three.
#include <fmt/core.h>
#include <torch/torch.h>

#include <array>

#include "trireme/core/error.h"
#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/fused/gpu_layers.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace clas_resnet_parts {
namespace {

using nn::Activation;
using nn::ConvBnAct;

struct Row {
  int layers;
  bool bottleneck;                // 1x1, 3x3, 1x1 to the fourfold width; else 3x3, 3x3
  std::array<int64_t, 4> blocks;  // of each stage
  int64_t expansion() const { return bottleneck ? 4 : 1; }
};

constexpr auto kRows = std::to_array<Row>(
    {{18, false, {2, 2, 2, 2}}, {34, false, {3, 4, 6, 3}}, {50, true, {3, 4, 6, 3}}, {101, true, {3, 4, 23, 3}}});
constexpr std::array<int64_t, 4> kWidth = {64, 128, 256, 512};

enum class Variant { plain, vd };
enum class Shortcut { identity, conv, pool_conv };

struct BlockShape {
  int64_t in, width, stride;
  Shortcut shortcut;
};

class ClasBlockImpl : public torch::nn::Module {
 public:
  ClasBlockImpl(const Row& row, const BlockShape& shape) : stride_(shape.stride), shortcut_(shape.shortcut) {
    const auto [in, width, stride, shortcut] = shape;
    const int64_t out = width * row.expansion();
    if (row.bottleneck) {
      add({.in = in, .out = width});
      add({.in = width, .out = width, .kernel = 3, .stride = stride});
      add({.in = width, .out = out});
    } else {
      add({.in = in, .out = width, .kernel = 3, .stride = stride});
      add({.in = width, .out = out, .kernel = 3});
    }
    if (shortcut == Shortcut::identity) return;
    const int64_t short_stride = shortcut == Shortcut::conv ? stride : 1;
    short_ = register_module("short",
                             ConvBnAct({.in = in, .out = out, .stride = short_stride, .activation = Activation::none}));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x;
    for (size_t i = 0; i + 1 < units_.size(); ++i) y = units_[i]->forward(y);
    return units_.back()->forward_adding(y, shortcut(x));
  }

 private:
  void add(const nn::ConvBnActOptions& options) {
    units_.push_back(register_module(fmt::format("conv{}", units_.size()), ConvBnAct(options)));
  }

  torch::Tensor shortcut(const torch::Tensor& x) {
    if (!short_) return x;
    return short_->forward(shortcut_ == Shortcut::pool_conv ? pooled(x) : x);
  }

  /// The mean of 2x2 pixels. At the right and lower edge a pixel may have no partner, and stays itself.
  torch::Tensor pooled(const torch::Tensor& x) const {
    if (stride_ == 1) return torch::avg_pool2d(torch::replication_pad2d(x, {0, 1, 0, 1}), 2, 1);
    return torch::avg_pool2d(x, 2, stride_, 0, /*ceil_mode=*/true, /*count_include_pad=*/false);
  }

  int64_t stride_;
  Shortcut shortcut_;
  std::vector<ConvBnAct> units_;
  ConvBnAct short_{nullptr};
};
TORCH_MODULE(ClasBlock);

torch::nn::Sequential stem(Variant variant, const Settings& settings) {
  const int64_t in = settings.in_channels, stride = settings.stem_stride();
  if (variant == Variant::plain)
    return torch::nn::Sequential(
        ConvBnAct({.in = in, .out = 64, .kernel = settings.small_input ? 3 : 7, .stride = stride}));
  return torch::nn::Sequential(ConvBnAct({.in = in, .out = 32, .kernel = 3, .stride = stride}),
                               ConvBnAct({.in = 32, .out = 32, .kernel = 3}),
                               ConvBnAct({.in = 32, .out = 64, .kernel = 3}));
}

class ClasResNet : public Classifier {
 public:
  ClasResNet(const std::string& name, const Row& row, Variant variant, const Settings& settings)
      : Classifier(name), pool_stride_(settings.small_input ? 0 : settings.strides[1]) {
    stem_ = register_module("stem", stem(variant, settings));
    if (!settings.lr_mult_list.empty()) lr_factors_.push_back({"stem.", settings.lr_mult_list[0]});
    for (size_t stage = 0; stage < kWidth.size(); ++stage) add_stage(stage, row, variant, settings);
    register_module("blocks", blocks_);
    fc_ = register_module("fc", torch::nn::Linear(kWidth.back() * row.expansion(), settings.class_num));
    nn::kaiming_convs(*this, nn::Fan::in_all_groups);
    const torch::NoGradGuard no_grad;
    fc_->bias.zero_();  // the weight is uniform in +-1 / sqrt(inputs) already, by torch's own rule
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = stem_->forward(x);
    if (pool_stride_ > 0) x = nn::fused::gpu::max_pool(x, 3, pool_stride_, 1);
    x = torch::adaptive_avg_pool2d(blocks_->forward(x), {1, 1});
    return fc_->forward(torch::flatten(x, 1));
  }

 private:
  void add_stage(size_t stage, const Row& row, Variant variant, const Settings& settings) {
    const int64_t width = kWidth[stage];
    for (int64_t i = 0; i < row.blocks[stage]; ++i) {
      BlockShape shape{.in = width * row.expansion(), .width = width, .stride = 1, .shortcut = Shortcut::identity};
      if (i == 0) {
        shape.in = stage == 0 ? kWidth[0] : kWidth[stage - 1] * row.expansion();
        shape.stride = stage == 0 ? 1 : settings.strides[stage + 1];
        shape.shortcut = first_shortcut(stage, variant, settings);
      }
      if (!settings.lr_mult_list.empty())
        lr_factors_.push_back({fmt::format("blocks.{}.", blocks_->size()), settings.lr_mult_list[stage + 1]});
      blocks_->push_back(ClasBlock(row, shape));
    }
  }

  static Shortcut first_shortcut(size_t stage, Variant variant, const Settings& settings) {
    if (stage == 0) return settings.first_short_conv ? Shortcut::conv : Shortcut::identity;
    return variant == Variant::vd ? Shortcut::pool_conv : Shortcut::conv;
  }

  int64_t pool_stride_;  // 0: no pooling
  torch::nn::Sequential stem_{nullptr}, blocks_;
  torch::nn::Linear fc_{nullptr};
};

const Row& row_of(const std::string& name, int layers) {
  for (const Row& row : kRows)
    if (row.layers == layers) return row;
  throw UsageError("there is no {}; ResNets have 18, 34, 50 or 101 layers", name);
}

ClassifierPtr make(int layers, Variant variant, const ModelOptions& options) {
  const std::string name = fmt::format("ResNet{}{}", layers, variant == Variant::vd ? "_vd" : "");
  const Row& row = row_of(name, layers);
  const Settings settings = settle(name, options, {.lr_parts = 1 + kWidth.size(), .first_short_conv = true});
  if (row.bottleneck && !settings.first_short_conv)
    throw UsageError("{}: use_first_short_conv is False, but its first shortcut has to widen 64 channels to 256", name);
  return std::make_shared<ClasResNet>(name, row, variant, settings);
}

}  // namespace
}  // namespace clas_resnet_parts

ClassifierPtr clas_resnet(int layers, const ModelOptions& options) {
  return clas_resnet_parts::make(layers, clas_resnet_parts::Variant::plain, options);
}
ClassifierPtr clas_resnet_vd(int layers, const ModelOptions& options) {
  return clas_resnet_parts::make(layers, clas_resnet_parts::Variant::vd, options);
}

}  // namespace trireme::models
