// export_dump FOLDER: exports every network of the zoo, with random weights, to FOLDER/NAME, and beside it what the
// network itself gives: FOLDER/NAME/reference.safetensors with `images` and `scores`. Prints NAME when its folder is
// complete. One network of each family comes once more for small images, as NAME-small; EveryOperator comes first.
#include <fmt/core.h>
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "tests/interop/every_operator.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/deploy/export/export.h"
#include "trireme/deploy/export/lower.h"
#include "trireme/deploy/export/traced.h"
#include "trireme/io/safetensors.h"
#include "trireme/models/models.h"

namespace {

namespace fs = std::filesystem;
using trireme::deploy::Network;
using trireme::models::create;
using trireme::models::ModelOptions;

constexpr int64_t kClasses = 17, kBatch = 3;
constexpr int kSide = 72;  // gives odd sizes on the way: rounding shows
constexpr int kSmallSide = 20;
constexpr int kDigitSide = 28;
constexpr int kOddSide = 21;

/// Normalisations whose folding would show, were it wrong.
void disturb(torch::nn::Module& net) {
  for (const auto& part : net.modules())
    if (auto* norm = part->as<torch::nn::BatchNorm2d>()) {
      norm->running_mean.normal_(0, 0.2);
      norm->running_var.uniform_(0.5, 2);
      norm->weight.uniform_(0.5, 1.5);
      norm->bias.normal_(0, 0.2);
    }
}

/// Scores that differ: of equal ones any network gives the right softmax.
torch::Tensor spread(const Network& net, const torch::Tensor& images) {
  torch::nn::LinearImpl* last = nullptr;
  for (const auto& part : net.module->modules())
    if (auto* linear = part->as<torch::nn::Linear>()) last = linear;
  last->weight.mul_(2 / net.forward(images).std());
  return net.forward(images).softmax(1);
}

struct Case {
  std::string name;
  int channels, side;
};

void dump(const Case& one, const Network& net, const fs::path& folder) {
  const torch::NoGradGuard no_grad;
  disturb(*net.module);
  net.module->eval();
  trireme::io::TensorMap reference;
  const torch::Tensor images = torch::randn({kBatch, one.channels, one.side, one.side});
  reference.insert("images", images);
  reference.insert("scores", spread(net, images));
  trireme::bundle::Description description;
  description.model_name = one.name;
  description.input = {.channels = one.channels, .height = one.side, .width = one.side};
  trireme::deploy::export_model(net, description, folder / one.name);
  trireme::io::save_safetensors(folder / one.name / "reference.safetensors", reference);
  fmt::print("{}\n", one.name);
  std::fflush(stdout);
}

void dump_every_operator(const fs::path& folder) {
  EveryOperator net(kClasses);
  net->eval();
  const auto traced = trireme::deploy::trace(net, torch::zeros({2, 3, kOddSide, kOddSide}));
  for (const std::string& op : trireme::deploy::lowered_operators())
    if (traced.nodes_of(c10::Symbol::fromQualString("aten::" + op)).empty())
      throw trireme::UsageError("EveryOperator has no {}", op);
  dump({"EveryOperator", 3, kOddSide}, net, folder);
}

/// resnet50 is ResNet50.
std::vector<std::string> networks() {
  std::vector<std::string> all;
  std::set<std::string> seen;
  for (const std::string& name : trireme::models::names())
    if (seen.insert(trireme::to_lower(name)).second) all.push_back(name);
  return all;
}

void dump_all(const fs::path& folder) {
  torch::manual_seed(11);
  dump_every_operator(folder);
  const std::set<std::string> digits = {"LeNet", "MnistPerceptron"};
  const std::set<std::string> one_of_each_family = {
      "ResNet18",      "ResNet50_vd",    "mobilenet_v3_small", "MobileNetV3_small_x0_35", "MobileNetV3_large_x0_35",
      "PPLCNet_x0_25", "PPLCNetV2_base", "PPHGNet_tiny"};
  for (const std::string& name : networks()) {
    if (digits.contains(name)) {
      dump({name, 1, kDigitSide}, create(name, {.class_num = kClasses}), folder);
      continue;
    }
    dump({name, 3, kSide}, create(name, {.class_num = kClasses}), folder);
    const ModelOptions small{.class_num = kClasses, .in_channels = 1, .small_input = true};
    if (one_of_each_family.contains(name)) dump({name + "-small", 1, kSmallSide}, create(name, small), folder);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: export_dump FOLDER\n");
    return 2;
  }
  try {
    dump_all(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "export_dump: {}\n", error.what());
    return 1;
  }
}
