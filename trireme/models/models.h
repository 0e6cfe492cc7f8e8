// The zoo: image classifiers by name or by function.
//
//   auto net = models::create("PPLCNet_x1_0", {.class_num = 102});       // as a config says it
//   DataParallel model(models::resnet50({.class_num = 10}), world);      // as a program says it
//
// Names are PaddleClas' ("ResNet50", "MobileNetV3_small_x1_0", "PPLCNet_x0_25") and torchvision's ("resnet50",
// "mobilenet_v3_small"). Each has its author's parameter names and layers, so that its author's weights load: ResNet50 and
// resnet50 differ in names only, ResNet18 and resnet18 in a convolution, MobileNetV3 in the head. Weights start at random,
// as their authors do it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/classifier.h"
#include "trireme/models/network_layer.h"

namespace trireme::models {

/// UsageError with the nearest names if there is none of that name.
ClassifierPtr create(const std::string& name, const ModelOptions& options = {});
/// All names that create() knows.
std::vector<std::string> names();

/// LeCun et al. 1998 as paddle.vision has it, for 28 x 28 images of one channel.
ClassifierPtr lenet(const ModelOptions& options = {});
ClassifierPtr lenet(int64_t class_num);
/// 784 - 512 - ReLU - dropout - 10, the first network of Paddle's tutorials, for 28 x 28 images.
ClassifierPtr mnist_perceptron(const ModelOptions& options = {});

/// He et al. 2015, torchvision's layout.
ClassifierPtr resnet18(const ModelOptions& options = {});
ClassifierPtr resnet34(const ModelOptions& options = {});
ClassifierPtr resnet50(const ModelOptions& options = {});
ClassifierPtr resnet101(const ModelOptions& options = {});
/// The same of 18, 34, 50 or 101 layers as a list, for a Pipeline: conv1, bn1, layer1 to layer4, fc.
std::vector<NetworkLayer> resnet_layers(int layers, const ModelOptions& options = {});
/// The same in PaddleClas' layout: 18, 34, 50 or 101 layers.
ClassifierPtr clas_resnet(int layers, const ModelOptions& options = {});
/// He et al. 2018, variant D: three 3x3 convolutions first, and pooling on the shortcuts. PaddleClas' layout.
ClassifierPtr clas_resnet_vd(int layers, const ModelOptions& options = {});

/// Howard et al. 2019, torchvision's layout.
ClassifierPtr mobilenet_v3_small(const ModelOptions& options = {});
ClassifierPtr mobilenet_v3_large(const ModelOptions& options = {});
/// The same in PaddleClas' layout, all widths times `scale`.
ClassifierPtr clas_mobilenet_v3_small(double scale, const ModelOptions& options = {});
ClassifierPtr clas_mobilenet_v3_large(double scale, const ModelOptions& options = {});

/// Cui et al. 2021, all widths times `scale`.
ClassifierPtr pplcnet(double scale, const ModelOptions& options = {});
/// Its second version. Trains with parallel depthwise convolutions, which reparameterize() adds up into one each; that
/// one is there from the start, as in PaddleClas' weights, but gets no gradient.
ClassifierPtr pplcnet_v2_base(const ModelOptions& options = {});

/// PaddleClas 2022, for GPUs.
ClassifierPtr pphgnet_tiny(const ModelOptions& options = {});
ClassifierPtr pphgnet_small(const ModelOptions& options = {});
ClassifierPtr pphgnet_base(const ModelOptions& options = {});

}  // namespace trireme::models
