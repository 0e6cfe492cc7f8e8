// MobileNetV3: one table of blocks for both layouts.
//
//                     torchvision                          PaddleClas
//   expansion         left out where it expands nothing    always
//   squeeze width     a quarter, as a multiple of 8        a quarter
//   gate's slope      1/6                                  1/5
//   head              linear 1024 or 1280 after pooling    1x1 convolution to 1280 after pooling, no bias
#include <torch/torch.h>

#include <array>
#include <span>

#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/fused/inverted_residual.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace mobilenet_v3_parts {
namespace {

using nn::Activation;
using nn::ConvBnAct;
using nn::SqueezeExcite;

constexpr auto RE = Activation::relu;
constexpr auto HS = Activation::hardswish;
constexpr int64_t kStem = 16;
constexpr int64_t kLastFactor = 6;  // of the last block's width, for the convolution before pooling

struct Row {
  int64_t kernel, expanded, out;
  bool squeeze;
  Activation activation;
  int64_t stride;
};

// Tables 1 and 2 of the paper.
constexpr auto kLarge = std::to_array<Row>({
    {3, 16, 16, false, RE, 1},
    {3, 64, 24, false, RE, 2},
    {3, 72, 24, false, RE, 1},
    {5, 72, 40, true, RE, 2},
    {5, 120, 40, true, RE, 1},
    {5, 120, 40, true, RE, 1},
    {3, 240, 80, false, HS, 2},
    {3, 200, 80, false, HS, 1},
    {3, 184, 80, false, HS, 1},
    {3, 184, 80, false, HS, 1},
    {3, 480, 112, true, HS, 1},
    {3, 672, 112, true, HS, 1},
    {5, 672, 160, true, HS, 2},
    {5, 960, 160, true, HS, 1},
    {5, 960, 160, true, HS, 1},
});
constexpr auto kSmall = std::to_array<Row>({
    {3, 16, 16, true, RE, 2},
    {3, 72, 24, false, RE, 2},
    {3, 88, 24, false, RE, 1},
    {5, 96, 40, true, HS, 2},
    {5, 240, 40, true, HS, 1},
    {5, 240, 40, true, HS, 1},
    {5, 120, 48, true, HS, 1},
    {5, 144, 48, true, HS, 1},
    {5, 288, 96, true, HS, 2},
    {5, 576, 96, true, HS, 1},
    {5, 576, 96, true, HS, 1},
});

struct Variant {
  const char* name;
  std::span<const Row> rows;
  int64_t hidden;  // width of the head
};

/// x + f(x) where the shapes allow it.
class InvertedResidual : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& x) {
    const nn::fused::InvertedResidual block{.expand = expand_.is_empty() ? nullptr : expand_.get(),
                                            .depthwise = depthwise_.get(),
                                            .squeeze = squeeze_.is_empty() ? nullptr : squeeze_.get(),
                                            .project = project_.get(),
                                            .shortcut = shortcut_};
    if (nn::fused::can_fuse(block, x)) return nn::fused::inverted_residual(block, x);
    torch::Tensor y = depthwise_->forward(expand_ ? expand_->forward(x) : x);
    if (squeeze_) y = squeeze_->forward(y);
    return project_->forward_adding(y, shortcut_ ? x : torch::Tensor());
  }

 protected:
  InvertedResidual(int64_t in, const Row& row) : shortcut_(row.stride == 1 && in == row.out) {}
  ConvBnAct expand_{nullptr}, depthwise_{nullptr}, project_{nullptr};
  SqueezeExcite squeeze_{nullptr};

 private:
  bool shortcut_;
};

ConvBnAct torchvision_conv(nn::ConvBnActOptions options) {
  options.bn_epsilon = 1e-3;
  options.bn_momentum = 0.01;
  options.conv_name = "0";
  options.bn_name = "1";
  return ConvBnAct(options);
}

class TorchvisionBlockImpl : public InvertedResidual {
 public:
  TorchvisionBlockImpl(int64_t in, const Row& row) : InvertedResidual(in, row) {
    const auto [kernel, wide, out, squeeze, activation, stride] = row;
    torch::nn::Sequential layers;
    if (wide != in) expand_ = torchvision_conv({.in = in, .out = wide, .activation = activation});
    depthwise_ = torchvision_conv(
        {.in = wide, .out = wide, .kernel = kernel, .stride = stride, .groups = wide, .activation = activation});
    const int64_t quarter = wide / 4;
    if (squeeze) squeeze_ = SqueezeExcite({.channels = wide, .squeeze = make_divisible(static_cast<double>(quarter))});
    project_ = torchvision_conv({.in = wide, .out = out, .activation = Activation::none});
    if (expand_) layers->push_back(expand_);
    layers->push_back(depthwise_);
    if (squeeze_) layers->push_back(squeeze_);
    layers->push_back(project_);
    register_module("block", layers);
  }
};
TORCH_MODULE(TorchvisionBlock);

class ClasBlockImpl : public InvertedResidual {
 public:
  ClasBlockImpl(int64_t in, const Row& row) : InvertedResidual(in, row) {
    const auto [kernel, wide, out, squeeze, activation, stride] = row;
    expand_ = register_module("expand_conv", ConvBnAct({.in = in, .out = wide, .activation = activation}));
    depthwise_ = register_module(
        "bottleneck_conv",
        ConvBnAct(
            {.in = wide, .out = wide, .kernel = kernel, .stride = stride, .groups = wide, .activation = activation}));
    if (squeeze)
      squeeze_ = register_module("mid_se", SqueezeExcite({.channels = wide,
                                                          .squeeze = wide / 4,
                                                          .gate = Activation::hardsigmoid_fifth,
                                                          .squeeze_name = "conv1",
                                                          .excite_name = "conv2"}));
    project_ = register_module("linear_conv", ConvBnAct({.in = wide, .out = out, .activation = Activation::none}));
  }
};
TORCH_MODULE(ClasBlock);

class TorchvisionMobileNetV3 : public Classifier {
 public:
  TorchvisionMobileNetV3(const Variant& variant, const Settings& settings) : Classifier(variant.name) {
    features_->push_back(torchvision_conv(
        {.in = settings.in_channels, .out = kStem, .kernel = 3, .stride = settings.stem_stride(), .activation = HS}));
    int64_t in = kStem;
    for (const Row& row : variant.rows) {
      features_->push_back(TorchvisionBlock(in, row));
      in = row.out;
    }
    features_->push_back(torchvision_conv({.in = in, .out = kLastFactor * in, .activation = HS}));
    classifier_->push_back("0", torch::nn::Linear(kLastFactor * in, variant.hidden));
    classifier_->push_back("1", torch::nn::Functional(torch::hardswish));
    classifier_->push_back("2", nn::Dropout(settings.dropout));
    classifier_->push_back("3", torch::nn::Linear(variant.hidden, settings.class_num));
    register_module("features", features_);
    register_module("classifier", classifier_);
    nn::kaiming_convs(*this, nn::Fan::out);
    nn::normal_linears(*this, 0.01);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::adaptive_avg_pool2d(features_->forward(x), {1, 1});
    return classifier_->forward(torch::flatten(x, 1));
  }

 private:
  torch::nn::Sequential features_, classifier_;
};

Row scaled(Row row, double scale) {
  row.expanded = make_divisible(scale * static_cast<double>(row.expanded));
  row.out = make_divisible(scale * static_cast<double>(row.out));
  return row;
}

class ClasMobileNetV3 : public Classifier {
 public:
  ClasMobileNetV3(const Variant& variant, double scale, const Settings& settings)
      : Classifier(variant.name), dropout_(settings.dropout, nn::DropoutScale::in_evaluation) {
    int64_t in = make_divisible(kStem * scale);
    stem_ = register_module(
        "conv",
        ConvBnAct(
            {.in = settings.in_channels, .out = in, .kernel = 3, .stride = settings.stem_stride(), .activation = HS}));
    for (const Row& row : variant.rows) {
      blocks_->push_back(ClasBlock(in, scaled(row, scale)));
      in = scaled(row, scale).out;
    }
    register_module("blocks", blocks_);
    const int64_t last = make_divisible(scale * static_cast<double>(kLastFactor * variant.rows.back().out));
    last_ = register_module("last_second_conv", ConvBnAct({.in = in, .out = last, .activation = HS}));
    head_ =
        register_module("last_conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(last, variant.hidden, 1).bias(false)));
    register_module("dropout", dropout_);
    fc_ = register_module("fc", torch::nn::Linear(variant.hidden, settings.class_num));
    nn::kaiming_convs(*this, nn::Fan::in_all_groups);
    nn::xavier_linears(*this);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = last_->forward(blocks_->forward(stem_->forward(x)));
    x = torch::hardswish(head_->forward(torch::adaptive_avg_pool2d(x, {1, 1})));
    return fc_->forward(torch::flatten(dropout_->forward(x), 1));
  }

 private:
  ConvBnAct stem_{nullptr}, last_{nullptr};
  torch::nn::Sequential blocks_;
  torch::nn::Conv2d head_{nullptr};
  nn::Dropout dropout_;
  torch::nn::Linear fc_{nullptr};
};

ClassifierPtr torchvision(const Variant& variant, const ModelOptions& options) {
  return std::make_shared<TorchvisionMobileNetV3>(variant, settle(variant.name, options, {.dropout = 0.2}));
}

ClassifierPtr clas(const Variant& variant, double scale, const ModelOptions& options) {
  return std::make_shared<ClasMobileNetV3>(variant, positive_scale(variant.name, scale),
                                           settle(variant.name, options, {.dropout = 0.2}));
}

}  // namespace
}  // namespace mobilenet_v3_parts

ClassifierPtr mobilenet_v3_small(const ModelOptions& options) {
  return mobilenet_v3_parts::torchvision({"mobilenet_v3_small", mobilenet_v3_parts::kSmall, 1024}, options);
}
ClassifierPtr mobilenet_v3_large(const ModelOptions& options) {
  return mobilenet_v3_parts::torchvision({"mobilenet_v3_large", mobilenet_v3_parts::kLarge, 1280}, options);
}
ClassifierPtr clas_mobilenet_v3_small(double scale, const ModelOptions& options) {
  return mobilenet_v3_parts::clas({"MobileNetV3_small", mobilenet_v3_parts::kSmall, 1280}, scale, options);
}
ClassifierPtr clas_mobilenet_v3_large(double scale, const ModelOptions& options) {
  return mobilenet_v3_parts::clas({"MobileNetV3_large", mobilenet_v3_parts::kLarge, 1280}, scale, options);
}

}  // namespace trireme::models
