// PP-LCNet: depthwise and pointwise convolutions in turn, squeeze-and-excitation only at the end, where it is cheap.
#include <fmt/core.h>
#include <torch/torch.h>

#include <array>
#include <span>
#include <vector>

#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/fused/inverted_residual.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace pplcnet_parts {
namespace {

using nn::Activation;
using nn::ConvBnAct;

constexpr auto HS = Activation::hardswish;

struct Row {
  int64_t kernel, in, out;
  bool squeeze;
};

// Table 2 of the paper; a stage per image size, named blocks2 to blocks6, whose first block shrinks the image (not of
// blocks2).
constexpr Row kBlocks2[] = {{3, 16, 32, false}};
constexpr Row kBlocks3[] = {{3, 32, 64, false}, {3, 64, 64, false}};
constexpr Row kBlocks4[] = {{3, 64, 128, false}, {3, 128, 128, false}};
constexpr Row kBlocks5[] = {{3, 128, 256, false}, {5, 256, 256, false}, {5, 256, 256, false},
                            {5, 256, 256, false}, {5, 256, 256, false}, {5, 256, 256, false}};
constexpr Row kBlocks6[] = {{5, 256, 512, true}, {5, 512, 512, true}};
constexpr std::array<std::span<const Row>, 5> kStages = {kBlocks2, kBlocks3, kBlocks4, kBlocks5, kBlocks6};
constexpr int64_t kStem = 16, kLast = 512, kHead = 1280;

class DepthwiseSeparableImpl : public torch::nn::Module {
 public:
  DepthwiseSeparableImpl(const Row& row, int64_t stride, double scale) {
    const int64_t in = make_divisible(static_cast<double>(row.in) * scale);
    const int64_t out = make_divisible(static_cast<double>(row.out) * scale);
    dw_ = register_module(
        "dw_conv",
        ConvBnAct({.in = in, .out = in, .kernel = row.kernel, .stride = stride, .groups = in, .activation = HS}));
    if (row.squeeze)
      se_ = register_module(
          "se",
          nn::SqueezeExcite({.channels = in, .squeeze = in / 4, .squeeze_name = "conv1", .excite_name = "conv2"}));
    pw_ = register_module("pw_conv", ConvBnAct({.in = in, .out = out, .activation = HS}));
  }

  torch::Tensor forward(torch::Tensor x) {
    const nn::fused::InvertedResidual block{
        .depthwise = dw_.get(), .squeeze = se_.is_empty() ? nullptr : se_.get(), .project = pw_.get()};
    if (nn::fused::can_fuse(block, x)) return nn::fused::inverted_residual(block, x);
    x = dw_->forward(x);
    if (se_) x = se_->forward(x);
    return pw_->forward(x);
  }

 private:
  ConvBnAct dw_{nullptr}, pw_{nullptr};
  nn::SqueezeExcite se_{nullptr};
};
TORCH_MODULE(DepthwiseSeparable);

/// The first block has the stage's stride.
torch::nn::Sequential stage(std::span<const Row> rows, int64_t stride, double scale) {
  torch::nn::Sequential blocks;
  for (const Row& row : rows) blocks->push_back(DepthwiseSeparable(row, blocks->is_empty() ? stride : 1, scale));
  return blocks;
}

class PPLCNet : public Classifier {
 public:
  PPLCNet(double scale, const Settings& settings)
      : Classifier("PPLCNet"), dropout_(settings.dropout, nn::DropoutScale::in_evaluation) {
    stem_ = register_module("conv1", ConvBnAct({.in = settings.in_channels,
                                                .out = make_divisible(kStem * scale),
                                                .kernel = 3,
                                                .stride = settings.stem_stride(),
                                                .activation = HS}));
    for (const auto& rows : kStages) {
      const size_t i = stages_.size();
      stages_.emplace_back(
          register_module(fmt::format("blocks{}", i + 2), stage(rows, i == 0 ? 1 : settings.strides[i], scale)));
    }
    const int64_t last = make_divisible(kLast * scale);
    last_conv_ = register_module("last_conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(last, kHead, 1).bias(false)));
    register_module("dropout", dropout_);
    fc_ = register_module("fc", torch::nn::Linear(kHead, settings.class_num));
    nn::kaiming_convs(*this, nn::Fan::in);
    nn::xavier_linears(*this);
    for (size_t i = 0; i < settings.lr_mult_list.size(); ++i)
      lr_factors_.push_back({i == 0 ? "conv1." : fmt::format("blocks{}.", i + 1), settings.lr_mult_list[i]});
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = stem_->forward(x);
    for (auto& blocks : stages_) x = blocks->forward(x);
    x = torch::hardswish(last_conv_->forward(torch::adaptive_avg_pool2d(x, {1, 1})));
    return fc_->forward(torch::flatten(dropout_->forward(x), 1));
  }

 private:
  ConvBnAct stem_{nullptr};
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Conv2d last_conv_{nullptr};
  nn::Dropout dropout_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace
}  // namespace pplcnet_parts

ClassifierPtr pplcnet(double scale, const ModelOptions& options) {
  return std::make_shared<pplcnet_parts::PPLCNet>(
      positive_scale("PPLCNet", scale),
      settle("PPLCNet", options, {.dropout = 0.2, .lr_parts = pplcnet_parts::kStages.size() + 1}));
}

}  // namespace trireme::models
