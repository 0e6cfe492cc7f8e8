// The two networks for 28 x 28 digits. Layers lie in named sequences like those of the Python originals, so that their
// weights fit.
#include <torch/torch.h>

#include "trireme/models/models.h"
#include "trireme/models/settings.h"
#include "trireme/nn/init.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace {

constexpr int64_t kSide = 28;

class LeNet : public Classifier {
 public:
  explicit LeNet(const Settings& settings) : Classifier("LeNet") {
    using torch::nn::Conv2dOptions;
    conv1_ = features_->register_module("0", torch::nn::Conv2d(Conv2dOptions(settings.in_channels, 6, 3).padding(1)));
    conv2_ = features_->register_module("3", torch::nn::Conv2d(Conv2dOptions(6, 16, 5)));
    fc1_ = fc_->register_module("0", torch::nn::Linear(16 * 5 * 5, 120));
    fc2_ = fc_->register_module("1", torch::nn::Linear(120, 84));
    fc3_ = fc_->register_module("2", torch::nn::Linear(84, settings.class_num));
    register_module("features", features_);
    register_module("fc", fc_);
    nn::kaiming_convs(*this, nn::Fan::in_all_groups);
    nn::xavier_linears(*this);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(conv1_->forward(x).relu_(), 2);
    x = torch::max_pool2d(conv2_->forward(x).relu_(), 2);
    x = fc1_->forward(torch::flatten(x, 1)).relu_();  // paddle.vision has nothing here; the paper has
    return fc3_->forward(fc2_->forward(x).relu_());
  }

 private:
  std::shared_ptr<torch::nn::Module> features_ = std::make_shared<torch::nn::Module>("features");
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  std::shared_ptr<torch::nn::Module> fc_ = std::make_shared<torch::nn::Module>("fc");
  torch::nn::Linear fc1_{nullptr}, fc2_{nullptr}, fc3_{nullptr};
};

class MnistPerceptron : public Classifier {
 public:
  explicit MnistPerceptron(const Settings& settings) : Classifier("MnistPerceptron"), dropout_(settings.dropout) {
    hidden_ = register_module("1", torch::nn::Linear(settings.in_channels * kSide * kSide, 512));
    register_module("3", dropout_);
    output_ = register_module("4", torch::nn::Linear(512, settings.class_num));
    nn::xavier_linears(*this);
  }

  torch::Tensor forward(torch::Tensor x) override {
    return output_->forward(dropout_->forward(hidden_->forward(torch::flatten(x, 1)).relu_()));
  }

 private:
  torch::nn::Linear hidden_{nullptr}, output_{nullptr};
  nn::Dropout dropout_;
};

}  // namespace

ClassifierPtr lenet(const ModelOptions& options) {
  return std::make_shared<LeNet>(settle("LeNet", options, {.class_num = 10, .in_channels = 1}));
}

ClassifierPtr lenet(int64_t class_num) {
  return lenet(ModelOptions{.class_num = class_num});
}

ClassifierPtr mnist_perceptron(const ModelOptions& options) {
  return std::make_shared<MnistPerceptron>(
      settle("MnistPerceptron", options, {.class_num = 10, .in_channels = 1, .dropout = 0.2}));
}

}  // namespace trireme::models
