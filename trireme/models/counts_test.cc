// Every network has exactly the parameters that its authors' has. Layers that are missing, twice, of another width or
// with a bias too many show here.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "trireme/models/models.h"

namespace trireme::models {
namespace {

int64_t elements(const std::vector<torch::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const torch::Tensor& tensor) { return sum + tensor.numel(); });
}

/// Means and variances; not the count of batches, which only torch keeps.
int64_t statistics(const Classifier& net) {
  int64_t sum = 0;
  for (const auto& buffer : net.named_buffers())
    if (buffer.value().dim() > 0) sum += buffer.value().numel();
  return sum;
}

struct Expected {
  const char* name;
  int64_t trainable;
  int64_t tensors;
  std::optional<int64_t> with_statistics = {};
};

std::ostream& operator<<(std::ostream& out, const Expected& expected) {
  return out << expected.name;
}

void expect(const Classifier& net, const Expected& expected) {
  EXPECT_EQ(elements(net.parameters()), expected.trainable);
  EXPECT_EQ(static_cast<int64_t>(net.parameters().size()), expected.tensors);
  if (expected.with_statistics) {
    EXPECT_EQ(elements(net.parameters()) + statistics(net), *expected.with_statistics);
  }
}

class Counts : public ::testing::TestWithParam<Expected> {};

TEST_P(Counts, AreTheAuthors) {
  expect(*create(GetParam().name), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Counts,
    ::testing::Values(
        Expected{"LeNet", 61'610, 10}, Expected{"MnistPerceptron", 407'050, 4}, Expected{"resnet18", 11'689'512, 62},
        Expected{"resnet34", 21'797'672, 110}, Expected{"resnet50", 25'557'032, 161, 25'610'152},
        Expected{"resnet101", 44'549'160, 314}, Expected{"ResNet18", 11'693'736, 65},
        Expected{"ResNet34", 21'801'896, 113}, Expected{"ResNet50", 25'557'032, 161, 25'610'152},
        Expected{"ResNet101", 44'549'160, 314}, Expected{"ResNet50_vd", 25'576'264, 167},
        Expected{"mobilenet_v3_small", 2'542'856, 142}, Expected{"mobilenet_v3_large", 5'483'032, 174},
        Expected{"MobileNetV3_small_x1_0", 2'939'958, 144, 2'952'102},
        Expected{"MobileNetV3_large_x1_0", 5'480'206, 176, 5'504'638},
        Expected{"PPLCNet_x0_25", 1'521'184, 92, 1'523'936}, Expected{"PPLCNet_x0_35", 1'643'090, 92, 1'646'930},
        Expected{"PPLCNet_x0_5", 1'879'576, 92, 1'885'048}, Expected{"PPLCNet_x0_75", 2'357'008, 92, 2'365'232},
        Expected{"PPLCNet_x1_0", 2'952'520, 92, 2'963'464}, Expected{"PPLCNet_x1_5", 4'499'832, 92, 4'516'248},
        Expected{"PPLCNet_x2_0", 6'521'512, 92, 6'543'400}, Expected{"PPLCNet_x2_5", 9'017'560, 92, 9'044'920},
        Expected{"PPLCNetV2_base", 6'800'360, 184, 6'841'192}, Expected{"PPHGNet_tiny", 14'735'864, 121, 14'750'904},
        Expected{"PPHGNet_small", 24'360'872, 136, 24'381'864}, Expected{"PPHGNet_base", 71'578'184, 229, 71'624'584}),
    [](const auto& one) { return one.param.name; });

TEST(Counts, OfPPLCNetV2ShrinkByReparameterization) {
  const auto net = pplcnet_v2_base();
  net->reparameterize();
  expect(*net, {"PPLCNetV2_base", 6'624'232, 118, 6'640'488});
}

/// Names as `net.named_parameters()` of the original has them.
void expect_names(const Classifier& net, const std::vector<std::string>& some) {
  const auto keys = net.named_parameters().keys();
  const std::set<std::string> all(keys.begin(), keys.end());
  for (const std::string& name : some) EXPECT_TRUE(all.count(name)) << net.name() << " has no " << name;
}

TEST(Names, AreTheAuthors) {
  expect_names(*lenet(), {"features.0.weight", "features.3.bias", "fc.2.weight"});
  expect_names(*mnist_perceptron(), {"1.weight", "4.bias"});
  expect_names(*clas_resnet(18), {"stem.0.conv.weight", "stem.0.bn.bias", "blocks.0.short.conv.weight",
                                  "blocks.7.conv1.bn.weight", "blocks.6.short.bn.bias", "fc.weight"});
  expect_names(*clas_resnet_vd(50), {"stem.2.conv.weight", "stem.0.bn.bias", "blocks.0.short.conv.weight",
                                     "blocks.3.conv1.bn.weight", "blocks.15.conv2.conv.weight", "fc.bias"});
  expect_names(*create("MobileNetV3_small_x0_35"),
               {"conv.conv.weight", "blocks.0.expand_conv.conv.weight", "blocks.0.mid_se.conv2.bias",
                "blocks.10.bottleneck_conv.bn.weight", "blocks.10.linear_conv.bn.bias", "last_second_conv.bn.weight",
                "last_conv.weight", "fc.weight"});
  expect_names(*pplcnet(0.25), {"conv1.conv.weight", "blocks2.0.dw_conv.bn.bias", "blocks5.5.pw_conv.conv.weight",
                                "blocks6.1.se.conv1.weight", "last_conv.weight", "fc.bias"});
  expect_names(*pplcnet_v2_base(), {"stem.0.conv.weight", "stem.1.pw_conv.bn.weight", "stages.0.1.dw_conv.conv.weight",
                                    "stages.2.0.dw_conv_list.1.bn.bias", "stages.2.5.dw_conv_list.2.conv.weight",
                                    "stages.2.3.pw_conv_2.conv.weight", "stages.3.1.dw_conv.bias", "fc.weight"});
  expect_names(*pphgnet_tiny(), {"stem.2.conv.weight", "stages.0.blocks.0.layers.4.bn.weight",
                                 "stages.2.blocks.1.aggregation_conv.conv.weight", "stages.3.downsample.bn.bias",
                                 "stages.1.blocks.0.att.conv.bias", "last_conv.weight", "fc.weight"});
}

}  // namespace
}  // namespace trireme::models
