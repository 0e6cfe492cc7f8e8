#include <array>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/models/models.h"

namespace trireme::models {
namespace {

struct Entry {
  const char* name;
  ClassifierPtr (*make)(const ModelOptions&);
};

template <ClassifierPtr (*family)(double, const ModelOptions&), int percent>
ClassifierPtr scaled(const ModelOptions& options) {
  return family(percent / 100.0, options);
}

template <ClassifierPtr (*family)(int, const ModelOptions&), int layers>
ClassifierPtr deep(const ModelOptions& options) {
  return family(layers, options);
}

constexpr auto kEntries = std::to_array<Entry>({
    {"LeNet", lenet},
    {"MnistPerceptron", mnist_perceptron},
    {"ResNet18", deep<clas_resnet, 18>},
    {"ResNet34", deep<clas_resnet, 34>},
    {"ResNet50", deep<clas_resnet, 50>},
    {"ResNet101", deep<clas_resnet, 101>},
    {"ResNet50_vd", deep<clas_resnet_vd, 50>},
    {"resnet18", resnet18},
    {"resnet34", resnet34},
    {"resnet50", resnet50},
    {"resnet101", resnet101},
    {"mobilenet_v3_small", mobilenet_v3_small},
    {"mobilenet_v3_large", mobilenet_v3_large},
    {"MobileNetV3_small_x0_35", scaled<clas_mobilenet_v3_small, 35>},
    {"MobileNetV3_small_x0_5", scaled<clas_mobilenet_v3_small, 50>},
    {"MobileNetV3_small_x0_75", scaled<clas_mobilenet_v3_small, 75>},
    {"MobileNetV3_small_x1_0", scaled<clas_mobilenet_v3_small, 100>},
    {"MobileNetV3_small_x1_25", scaled<clas_mobilenet_v3_small, 125>},
    {"MobileNetV3_large_x0_35", scaled<clas_mobilenet_v3_large, 35>},
    {"MobileNetV3_large_x0_5", scaled<clas_mobilenet_v3_large, 50>},
    {"MobileNetV3_large_x0_75", scaled<clas_mobilenet_v3_large, 75>},
    {"MobileNetV3_large_x1_0", scaled<clas_mobilenet_v3_large, 100>},
    {"MobileNetV3_large_x1_25", scaled<clas_mobilenet_v3_large, 125>},
    {"PPLCNet_x0_25", scaled<pplcnet, 25>},
    {"PPLCNet_x0_35", scaled<pplcnet, 35>},
    {"PPLCNet_x0_5", scaled<pplcnet, 50>},
    {"PPLCNet_x0_75", scaled<pplcnet, 75>},
    {"PPLCNet_x1_0", scaled<pplcnet, 100>},
    {"PPLCNet_x1_5", scaled<pplcnet, 150>},
    {"PPLCNet_x2_0", scaled<pplcnet, 200>},
    {"PPLCNet_x2_5", scaled<pplcnet, 250>},
    {"PPLCNetV2_base", pplcnet_v2_base},
    {"PPHGNet_tiny", pphgnet_tiny},
    {"PPHGNet_small", pphgnet_small},
    {"PPHGNet_base", pphgnet_base},
});

[[noreturn]] void refuse(const std::string& name) {
  const auto near = closest(name, names());
  throw UsageError("there is no network '{}'{}; there are {}", printable(name),
                   near ? fmt::format(" (did you mean {}?)", *near) : "", join(names(), ", "));
}

}  // namespace

ClassifierPtr create(const std::string& name, const ModelOptions& options) {
  for (const Entry& entry : kEntries)
    if (name == entry.name) return entry.make(options);
  refuse(name);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Entry& entry : kEntries) all.emplace_back(entry.name);
  return all;
}

}  // namespace trireme::models
