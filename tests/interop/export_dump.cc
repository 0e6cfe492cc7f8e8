// export_dump FOLDER: exports every network of the zoo, with random weights, to FOLDER/NAME, and beside it what the
// network itself gives: FOLDER/NAME/reference.safetensors with `images.S` and `output.S.I` of samples S, I-th output.
// Prints NAME when its folder is complete. One network of each family comes once more for small images, as NAME-small;
// EveryOperator and operator_cases.h come first.
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "tests/interop/every_operator.h"
#include "tests/interop/operator_cases.h"
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
void spread(const Network& net, const torch::Tensor& images) {
  torch::nn::LinearImpl* last = nullptr;
  for (const auto& part : net.module->modules())
    if (auto* linear = part->as<torch::nn::Linear>()) last = linear;
  last->weight.mul_(2 / net.forward(images)[0].std());
}

struct Case {
  std::string name;
  int channels, side;
  bool any_size = true;
};

/// Images of some numbers and sizes, and what the network gives for them.
class Reference {
 public:
  void add(const torch::Tensor& images, const std::vector<torch::Tensor>& outputs) {
    tensors_.insert(fmt::format("images.{}", samples_), images);
    for (size_t i = 0; i < outputs.size(); ++i)
      tensors_.insert(fmt::format("output.{}.{}", samples_, i), outputs[i].contiguous());
    ++samples_;
  }
  void save(const fs::path& folder) const {
    trireme::io::save_safetensors(folder / "reference.safetensors", tensors_);
    fmt::print("{}\n", folder.filename().string());
    std::fflush(stdout);
  }

 private:
  trireme::io::TensorMap tensors_;
  int samples_ = 0;
};

trireme::bundle::Description described(const Case& one) {
  trireme::bundle::Description description;
  description.model_name = one.name;
  description.input = {.channels = one.channels, .height = one.side, .width = one.side};
  return description;
}

void dump(const Case& one, const Network& net, const fs::path& folder) {
  const torch::NoGradGuard no_grad;
  disturb(*net.module);
  net.module->eval();
  const torch::Tensor images = torch::randn({kBatch, one.channels, one.side, one.side});
  spread(net, images);
  Reference reference;
  for (const int64_t batch : {kBatch, int64_t{1}}) {
    const torch::Tensor some = images.narrow(0, 0, batch);
    reference.add(some.contiguous(), {net.forward(some)[0].softmax(1)});
  }
  if (one.any_size) {
    const torch::Tensor larger = torch::randn({2, one.channels, one.side + 13, one.side + 6});
    reference.add(larger, {net.forward(larger)[0].softmax(1)});
  }
  trireme::deploy::export_model(net, described(one), folder / one.name, {.any_size = one.any_size});
  reference.save(folder / one.name);
}

/// With outputs as they are. With any_size also on other pictures, neither as high nor as wide as those of the trace.
void dump_case(const OperatorCase& one, const fs::path& folder) {
  const torch::NoGradGuard no_grad;
  const Network net(one.parts, one.forward);
  disturb(*net.module);
  net.module->eval();
  Reference reference;
  for (const int64_t batch : {int64_t{1}, int64_t{2}, kBatch + 2}) {
    const torch::Tensor images = torch::randn({batch, 3, one.side, one.side});
    reference.add(images, net.forward(images));
  }
  if (one.any_size) {
    const torch::Tensor images = torch::randn({kBatch, 3, one.side + 8, one.side + 16});
    reference.add(images, net.forward(images));
  }
  trireme::bundle::Description description = described({one.name, 3, one.side});
  description.output.activation = trireme::bundle::Activation::none;
  trireme::deploy::export_model(net, description, folder / one.name, {.any_size = one.any_size});
  reference.save(folder / one.name);
}

void remove_covered(const Network& net, int side, bool any_size, std::set<std::string>& operators) {
  net.module->eval();
  const auto traced = trireme::deploy::trace(net, {.channels = 3, .height = side, .width = side}, any_size);
  std::erase_if(operators, [&](const std::string& op) {
    return !traced.nodes_of(c10::Symbol::fromQualString("aten::" + op)).empty();
  });
}

/// Empty: it worked. The cases after one that fails are still tried.
std::string failure_of(const OperatorCase& one, const fs::path& folder, std::set<std::string>& operators) {
  try {
    remove_covered({one.parts, one.forward}, one.side, one.any_size, operators);
    dump_case(one, folder);
    return "";
  } catch (const std::exception& error) {
    return fmt::format("{}: {}\n", one.name, error.what());
  }
}

void dump_operators(const fs::path& folder) {
  const auto known = trireme::deploy::lowered_operators();
  std::set<std::string> operators(known.begin(), known.end());
  const EveryOperator every(kClasses);
  remove_covered(every, kOddSide, false, operators);
  dump({"EveryOperator", 3, kOddSide, false}, every, folder);
  std::string failed;
  for (const OperatorCase& one : operator_cases()) failed += failure_of(one, folder, operators);
  if (!operators.empty()) failed += fmt::format("no case has {}", fmt::join(operators, ", "));
  if (!failed.empty()) throw trireme::UsageError("{}", failed);
}

/// resnet50 has the operators of ResNet50.
std::vector<std::string> networks() {
  std::vector<std::string> all;
  std::set<std::string> seen;
  for (const std::string& name : trireme::models::names())
    if (seen.insert(trireme::to_lower(name)).second) all.push_back(name);
  return all;
}

/// Where the size of the pictures is free, the files are right for other sizes, too.
void dump_all(const fs::path& folder) {
  torch::manual_seed(11);
  dump_operators(folder);
  const std::set<std::string> digits = {"LeNet", "MnistPerceptron"};
  const std::set<std::string> one_of_each_family = {
      "ResNet18",      "ResNet50_vd",    "mobilenet_v3_small", "MobileNetV3_small_x0_35", "MobileNetV3_large_x0_35",
      "PPLCNet_x0_25", "PPLCNetV2_base", "PPHGNet_tiny"};
  for (const std::string& name : networks()) {
    if (digits.contains(name)) {
      dump({name, 1, kDigitSide, false}, create(name, {.class_num = kClasses}), folder);
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
