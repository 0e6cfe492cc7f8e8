// ResNet with torchvision's names. In a bottleneck the 3x3 convolution has the stride ("v1.5"), as in both frameworks.
#include <fmt/core.h>
#include <torch/torch.h>

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/batch_norm_act.h"
#include "trireme/nn/fused/gpu_layers.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace resnet_parts {
namespace {

using nn::Activation;

struct Row {
  const char* name;
  bool bottleneck;               // 1x1, 3x3, 1x1 to the fourfold width; else 3x3, 3x3
  std::array<int64_t, 4> depth;  // blocks of each stage
  int64_t expansion() const { return bottleneck ? 4 : 1; }
};

constexpr Row kResNet18 = {"resnet18", false, {2, 2, 2, 2}};
constexpr Row kResNet34 = {"resnet34", false, {3, 4, 6, 3}};
constexpr Row kResNet50 = {"resnet50", true, {3, 4, 6, 3}};
constexpr Row kResNet101 = {"resnet101", true, {3, 4, 23, 3}};
constexpr std::array<int64_t, 4> kWidth = {64, 128, 256, 512};

struct BlockShape {
  int64_t in, width, out, stride;
};

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const Row& row, const BlockShape& shape) {
    const auto [in, width, out, stride] = shape;
    if (row.bottleneck) {
      add({.in = in, .out = width});
      add({.in = width, .out = width, .kernel = 3, .stride = stride});
      add({.in = width, .out = out});
    } else {
      add({.in = in, .out = width, .kernel = 3, .stride = stride});
      add({.in = width, .out = out, .kernel = 3});
    }
    if (stride != 1 || in != out)
      downsample_ = register_module("downsample", nn::ConvBnAct({.in = in,
                                                                 .out = out,
                                                                 .stride = stride,
                                                                 .activation = Activation::none,
                                                                 .conv_name = "0",
                                                                 .bn_name = "1"}));
  }

  torch::Tensor forward(const torch::Tensor& x) { return forward_twice({x, x}).first; }

  /// Input and output are each for two readers: the layers and the shortcut.
  using Twice = std::pair<torch::Tensor, torch::Tensor>;
  Twice forward_twice(const Twice& x) {
    torch::Tensor y = x.first;
    for (size_t i = 0; i + 1 < units_.size(); ++i) y = units_[i].forward(y);
    return units_.back().forward_adding_twice(y, downsample_ ? downsample_->forward(x.second) : x.second);
  }

 private:
  void add(nn::ConvBnActOptions options) {
    options.conv_name = fmt::format("conv{}", units_.size() + 1);
    options.bn_name = fmt::format("bn{}", units_.size() + 1);
    units_.emplace_back(*this, options);
  }

  std::vector<nn::ConvBnUnit> units_;
  nn::ConvBnAct downsample_{nullptr};
};
TORCH_MODULE(Block);

torch::nn::Sequential stage(const Row& row, size_t index) {
  const int64_t out = kWidth[index] * row.expansion();
  int64_t in = index == 0 ? kWidth[0] : kWidth[index - 1] * row.expansion();
  torch::nn::Sequential blocks;
  for (int64_t i = 0; i < row.depth[index]; ++i) {
    blocks->push_back(Block(row, BlockShape{in, kWidth[index], out, i == 0 && index > 0 ? 2 : 1}));
    in = out;
  }
  return blocks;
}

nn::ConvBnActOptions stem(const Settings& settings) {
  const bool small = settings.small_input;
  return {.in = settings.in_channels,
          .out = 64,
          .kernel = small ? 3 : 7,
          .stride = small ? 1 : 2,
          .conv_name = "conv1",
          .bn_name = "bn1"};
}

class ResNet : public Classifier {
 public:
  ResNet(const Row& row, const Settings& settings)
      : Classifier(row.name), small_input_(settings.small_input), stem_(*this, stem(settings)) {
    for (size_t i = 0; i < kWidth.size(); ++i)
      stages_.emplace_back(register_module(fmt::format("layer{}", i + 1), stage(row, i)));
    fc_ = register_module("fc", torch::nn::Linear(kWidth.back() * row.expansion(), settings.class_num));
    nn::kaiming_convs(*this, nn::Fan::out);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = stem_.forward(x);
    BlockImpl::Twice y = {x, x};
    if (!small_input_) {
      const auto pooled = nn::fused::gpu::max_pool_twice(x, 3, 2, 1);
      y = {pooled.first, pooled.second};
    }
    for (auto& blocks : stages_)
      for (auto& block : *blocks) y = block.get<BlockImpl>().forward_twice(y);
    return fc_->forward(torch::flatten(torch::adaptive_avg_pool2d(y.first, {1, 1}), 1));
  }

 private:
  bool small_input_;
  nn::ConvBnUnit stem_;
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear fc_{nullptr};
};

// A module under a layer's name: its parameters and buffers are the layer's own, "conv1.weight". `around` calls it.
template <typename Held>
class NamedLayer : public nn::TensorModule {
 public:
  using Around = std::function<torch::Tensor(Held&, const torch::Tensor&)>;
  NamedLayer(Held module, Around around) : module_(std::move(module)), around_(std::move(around)) {
    nn::kaiming_convs(*module_, nn::Fan::out);
    for (const auto& item : module_->named_parameters(/*recurse=*/false)) register_parameter(item.key(), item.value());
    for (const auto& item : module_->named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
    for (const auto& item : module_->named_children()) register_module(item.key(), item.value());
  }
  torch::Tensor forward(const torch::Tensor& x) override { return around_(module_, x); }
  void train(bool on = true) override {
    nn::TensorModule::train(on);
    module_->train(on);
  }

 private:
  Held module_;
  Around around_;
};

template <typename Make, typename Around>
NetworkLayer layer(const std::string& name, const Make& make, const Around& around) {
  using Held = decltype(make());
  return {name, [=] { return std::make_shared<NamedLayer<Held>>(make(), around); }};
}

std::vector<NetworkLayer> layers_of(const Row& row, const ModelOptions& options) {
  const Settings settings = settle(row.name, options);
  const nn::ConvBnActOptions first = stem(settings);
  const auto plain = [](auto& module, const torch::Tensor& x) { return module->forward(x); };
  std::vector<NetworkLayer> layers;
  layers.push_back(layer(
      "conv1",
      [=] {
        return torch::nn::Conv2d(torch::nn::Conv2dOptions(first.in, first.out, first.kernel)
                                     .stride(first.stride)
                                     .padding(first.kernel / 2)
                                     .bias(false));
      },
      plain));
  layers.push_back(layer(
      "bn1", [=] { return nn::BatchNormAct(first.out); },
      [small = settings.small_input](nn::BatchNormAct& bn, const torch::Tensor& x) {
        const torch::Tensor y = bn->forward(x);
        return small ? y : torch::max_pool2d(y, 3, 2, 1);
      }));
  for (size_t i = 0; i < kWidth.size(); ++i)
    layers.push_back(layer(
        fmt::format("layer{}", i + 1), [=] { return stage(row, i); }, plain));
  layers.push_back(layer(
      "fc", [=] { return torch::nn::Linear(kWidth.back() * row.expansion(), settings.class_num); },
      [](torch::nn::Linear& fc, const torch::Tensor& x) {
        return fc(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
      }));
  return layers;
}

ClassifierPtr make(const Row& row, const ModelOptions& options) {
  return std::make_shared<ResNet>(row, settle(row.name, options));
}

}  // namespace
}  // namespace resnet_parts

ClassifierPtr resnet18(const ModelOptions& options) {
  return resnet_parts::make(resnet_parts::kResNet18, options);
}
ClassifierPtr resnet34(const ModelOptions& options) {
  return resnet_parts::make(resnet_parts::kResNet34, options);
}
ClassifierPtr resnet50(const ModelOptions& options) {
  return resnet_parts::make(resnet_parts::kResNet50, options);
}
ClassifierPtr resnet101(const ModelOptions& options) {
  return resnet_parts::make(resnet_parts::kResNet101, options);
}

std::vector<NetworkLayer> resnet_layers(int layers, const ModelOptions& options) {
  using namespace resnet_parts;
  for (const Row& row : {kResNet18, kResNet34, kResNet50, kResNet101})
    if (row.name == fmt::format("resnet{}", layers)) return layers_of(row, options);
  throw UsageError("resnet_layers: there is no ResNet of {} layers; there are 18, 34, 50 and 101", layers);
}

}  // namespace trireme::models
