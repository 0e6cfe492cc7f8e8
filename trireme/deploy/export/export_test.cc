#include "trireme/deploy/export/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"
#include "trireme/deploy/export/test_networks.h"
#include "trireme/models/models.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;
using bundle::Description;
using ::testing::AllOf, ::testing::HasSubstr;

/// Normalisations whose folding would show, were it wrong.
void disturb(torch::nn::Module& net) {
  const torch::NoGradGuard no_grad;
  for (const auto& part : net.modules())
    if (auto* norm = part->as<torch::nn::BatchNorm2d>()) {
      norm->running_mean.normal_(0, 0.2);
      norm->running_var.uniform_(0.5, 2);
      norm->weight.uniform_(0.5, 1.5);
      norm->bias.normal_(0, 0.2);
    }
}

Description described(const std::string& name, int channels, int side) {
  return {.model_name = name, .input = {.channels = channels, .height = side, .width = side}};
}

torch::jit::Module loaded(const fs::path& folder) {
  return torch::jit::load((folder / "inference.pt").string());
}

std::string bytes_of(const fs::path& folder, const char* file) {
  return read_file(folder / file).value_or("");
}

class Export : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  /// What is said when it is refused; nothing may have been written then.
  std::string refusal(const Network& net, const Description& description, const Options& options = {}) {
    try {
      export_model(net, description, folder_, options);
    } catch (const UsageError& error) {
      EXPECT_FALSE(fs::exists(folder_ / "inference.yml"));
      return error.what();
    }
    return "it was exported";
  }
  void expect_equal(const Network& net, int channels, int side) {
    net.module->eval();
    const torch::NoGradGuard no_grad;
    torch::jit::Module module = loaded(folder_);
    for (const int64_t batch : {1, 2, 5}) {
      const torch::Tensor images = torch::randn({batch, channels, side, side});
      const torch::Tensor expected = net.forward(images)[0].softmax(1), ours = module.forward({images}).toTensor();
      EXPECT_TRUE(torch::allclose(ours, expected, 1e-4, 1e-6)) << batch << " images: " << (ours - expected).abs().max();
    }
  }
  TempDir temp_;
  fs::path folder_ = temp_.path() / "inference";
};

int convolutions(const torch::jit::Module& module) {
  int count = 0;
  for (const auto* node : module.get_method("forward").graph()->nodes())
    count += node->kind() == c10::Symbol::fromQualString("aten::_convolution");
  return count;
}

bool has_batch_norm(const torch::jit::Module& module) {
  const auto nodes = module.get_method("forward").graph()->nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const auto* n) { return n->kind() == c10::aten::batch_norm; });
}

TEST_F(Export, LeNetGivesWhatItGives) {
  const auto net = models::lenet(10);
  const Description written = export_model(net, described("LeNet", 1, 28), folder_);
  EXPECT_EQ(written.output.class_num, 10);
  expect_equal(net, 1, 28);
  const Description read = bundle::read(folder_);
  EXPECT_EQ(read.model_name, "LeNet");
  EXPECT_EQ(read.input, written.input);
  EXPECT_EQ(read.output, written.output);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3) << "nothing hidden remains";
}

TEST_F(Export, WeightsKeepTheirNamesAndBecomeParameters) {
  export_model(models::lenet(10), described("LeNet", 1, 28), folder_);
  std::set<std::string> names;
  for (const auto& item : loaded(folder_).named_parameters()) names.insert(item.name);
  EXPECT_EQ(names, (std::set<std::string>{"features.0.weight", "features.0.bias", "features.3.weight",
                                          "features.3.bias", "fc.0.weight", "fc.0.bias", "fc.1.weight", "fc.1.bias",
                                          "fc.2.weight", "fc.2.bias"}));
}

TEST_F(Export, CanBeFrozenAndPutInEvaluationMode) {
  export_model(models::lenet(10), described("LeNet", 1, 28), folder_);
  torch::jit::Module module = loaded(folder_);
  module.eval();
  EXPECT_EQ(torch::jit::freeze(module).forward({torch::zeros({4, 1, 28, 28})}).toTensor().size(0), 4);
}

TEST_F(Export, FoldsBatchNormalisation) {
  const auto net = models::create("mobilenet_v3_small", {.class_num = 7});
  disturb(*net);
  export_model(net, described("mobilenet_v3_small", 3, 64), folder_);
  EXPECT_FALSE(has_batch_norm(loaded(folder_)));
  EXPECT_THAT(bytes_of(folder_, "inference.onnx"), ::testing::Not(HasSubstr("BatchNormalization")));
  EXPECT_THAT(bytes_of(folder_, "inference.onnx"),
              AllOf(HasSubstr("HardSwish"), HasSubstr("HardSigmoid"), HasSubstr("GlobalAveragePool"),
                    HasSubstr("Softmax"), HasSubstr("features.0.0.weight")));
  expect_equal(net, 3, 64);
}

TEST_F(Export, MergesBranchesAndLeavesTheNetworkAsItWas) {
  const auto net = models::pplcnet_v2_base({.class_num = 7});
  disturb(*net);
  net->train();
  const size_t parameters = net->parameters().size();
  export_model(net, described("PPLCNetV2_base", 3, 32), folder_);
  EXPECT_TRUE(net->is_training());
  EXPECT_EQ(net->parameters().size(), parameters);
  EXPECT_TRUE(net->parameters()[0].requires_grad());
  expect_equal(net, 3, 32);
  const int merged = convolutions(loaded(folder_));
  net->reparameterize();
  export_model(net, described("PPLCNetV2_base", 3, 32), folder_);
  EXPECT_EQ(merged, convolutions(loaded(folder_)));
}

TEST_F(Export, DoesNotTouchTheCallersRandomNumbers) {
  const auto net = models::lenet(10);
  torch::manual_seed(5);
  const torch::Tensor expected = torch::rand(1);
  torch::manual_seed(5);
  export_model(net, described("LeNet", 1, 28), folder_);
  EXPECT_TRUE(torch::rand(1).equal(expected));
}

TEST_F(Export, OfRawScoresAndOfSigmoid) {
  const auto net = models::lenet(3);
  Description description = described("LeNet", 1, 28);
  const torch::Tensor images = torch::randn({2, 1, 28, 28});
  description.output.activation = bundle::Activation::none;
  export_model(net, description, folder_);
  EXPECT_EQ(bundle::read(folder_).output.activation, bundle::Activation::none);
  const torch::Tensor raw = loaded(folder_).forward({images}).toTensor();
  EXPECT_TRUE(torch::allclose(raw, net->forward(images), 1e-4, 1e-5));
  description.output.activation = bundle::Activation::sigmoid;
  export_model(net, description, folder_);
  EXPECT_TRUE(torch::allclose(loaded(folder_).forward({images}).toTensor(), raw.sigmoid(), 1e-4, 1e-5));
}

// --- other people's networks

TEST_F(Export, OfAHolderWithABatchSizeInItsView) {
  const OwnNet net([](torch::Tensor x) { return x.view({x.size(0), -1}); });
  export_model(net, described("Own", 3, 2), folder_);
  expect_equal(net, 3, 2);
}

TEST_F(Export, OfAFunctionOverAModule) {
  const auto layer = std::make_shared<torch::nn::LinearImpl>(12, 4);
  export_model({layer, [layer](const torch::Tensor& x) { return layer->forward(flat(x)).tanh(); }},
               described("Own", 3, 2), folder_);
  EXPECT_EQ(loaded(folder_).forward({torch::zeros({5, 3, 2, 2})}).toTensor().size(0), 5);
}

TEST_F(Export, RefusesWhatDependsOnChance) {
  const OwnNet net([](torch::Tensor x) { return flat(x) + torch::rand({x.size(0), 12}); });
  EXPECT_THAT(refusal(net, described("Own", 3, 2)),
              AllOf(HasSubstr("Own is not exported"), HasSubstr("differs"), HasSubstr("it uses random numbers")));
}

TEST_F(Export, RefusesAFixedNumberOfImages) {
  const OwnNet net([](torch::Tensor x) {
    std::vector<torch::Tensor> rows;
    for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(x[i].flatten());
    return torch::stack(rows);
  });
  EXPECT_THAT(refusal(net, described("Own", 3, 2)),
              AllOf(HasSubstr("works on 2 images of 2 x 2 but not on 3 images of 2 x 2"),
                    HasSubstr("forward() takes other operators"), HasSubstr("A loop over the images")));
}

TEST_F(Export, RefusesWhatDependsOnValues) {
  const OwnNet net([](torch::Tensor x) {
    const bool first = x.size(0) == 2 && x.sum().item<float>() > 1e9;  // other images may say otherwise
    return flat(x) + static_cast<double>(first) + x.mean().item<double>();
  });
  EXPECT_THAT(refusal(net, described("Own", 3, 2)), AllOf(HasSubstr("aten::add gets"), HasSubstr("is not known")));
}

TEST_F(Export, NamesAnOperatorWithoutEqual) {
  const OwnNet net([](torch::Tensor x) { return flat(x).cumsum(1); });
  EXPECT_THAT(refusal(net, described("Own", 3, 2)),
              AllOf(HasSubstr("Own cannot become ONNX: operator aten::cumsum"), HasSubstr("2 x 12")));
  export_model(models::lenet(10), described("LeNet", 1, 28), folder_);
  export_model(net, described("Own", 3, 2), folder_, {.onnx = false});
  EXPECT_FALSE(fs::exists(folder_ / "inference.onnx")) << "that of another network";
  expect_equal(net, 3, 2);
}

TEST_F(Export, TheBatchMayBeAnotherDimensionThanTheFirst) {
  OwnNet net([](torch::Tensor x) { return split_heads(x).permute({1, 0, 2, 3}).flatten(1); });
  export_model(net, {.model_name = "Own", .input = {.channels = 6, .height = 2, .width = 1}}, folder_);
  torch::jit::Module module = loaded(folder_);
  for (const int64_t batch : {1, 2, 3}) {
    const torch::Tensor images = torch::randn({batch, 6, 2, 1});
    EXPECT_TRUE(torch::allclose(module.forward({images}).toTensor(), net->forward(images).softmax(1), 1e-4, 1e-6));
  }
}

TEST_F(Export, TheBatchMayBeTwoDimensions) {
  const OwnNet net([](torch::Tensor x) {
    const torch::Tensor rows = flat(x);
    return rows.matmul(rows.transpose(0, 1)).unsqueeze(0).squeeze(0).matmul(rows);
  });
  export_model(net, described("Own", 3, 2), folder_);
  expect_equal(net, 3, 2);
}

TEST_F(Export, OfOneNumberForAllDimensionsOfAConvolution) {
  const ShortNet net([](ShortNetImpl& self, torch::Tensor x) {
    return torch::conv2d(x, self.large, {}, /*stride=*/2, /*padding=*/1) + torch::conv2d(x, self.small, {}, 2);
  });
  export_model(net, described("Short", 3, 8), folder_);
  EXPECT_EQ(convolutions(loaded(folder_)), 1) << "branches become one";
  expect_equal(net, 3, 8);
  // field 1 the name, 8 the numbers one by one, 20 the type: numbers
  EXPECT_THAT(bytes_of(folder_, "inference.onnx"),
              AllOf(HasSubstr("strides\x40\x02\x40\x02"), HasSubstr("pads\x40\x01\x40\x01\x40\x01\x40\x01")));
}

TEST_F(Export, RefusesAShapeThatIsNoRowOfScores) {
  const auto layer = std::make_shared<torch::nn::LinearImpl>(2, 4);
  EXPECT_THAT(refusal(layer, described("Own", 3, 2)), HasSubstr("an output of 2 x 3 x 2 x 4; expected 2 rows"));
}

// --- what is compared

/// Scores of ten classes that lie within a millionth of each other: those of some networks before they learn.
models::ClassifierPtr almost_equal() {
  const torch::NoGradGuard no_grad;
  auto net = models::lenet(10);
  auto parameters = net->named_parameters();
  parameters["fc.2.bias"].zero_();
  parameters["fc.2.weight"].mul_(1e-6 / net->forward(torch::randn({8, 1, 28, 28})).abs().max());
  return net;
}

/// Stands for the engine that computes inference.onnx: the published TorchScript, spoilt.
OpenOnnx spoilt(const std::function<torch::Tensor(torch::Tensor)>& by) {
  return [by](const fs::path& folder, const Description&) -> Scorer {
    EXPECT_TRUE(fs::exists(folder / "inference.onnx")) << "it is there before it is opened";
    auto module = std::make_shared<torch::jit::Module>(loaded(folder));
    return [by, module](const torch::Tensor& images) { return Outputs{by(module->forward({images}).toTensor())}; };
  };
}

torch::Tensor turned(const torch::Tensor& scores) {
  return scores.roll(1, /*dims=*/1);
}

TEST_F(Export, ComparesTheOnnxFile) {
  std::vector<int64_t> batches;
  const auto seen = [&](torch::Tensor scores) { return batches.push_back(scores.size(0)), scores; };
  export_model(almost_equal(), described("LeNet", 1, 28), folder_, {.open_onnx = spoilt(seen)});
  EXPECT_THAT(batches, ::testing::UnorderedElementsAre(1, 2, 3, 1)) << "without softmax, and one image with it";
}

TEST_F(Export, AnOnnxFileThatWasNotRunIsTold) {
  const auto times_told = [&](const std::string& why, const Options& options) {
    const CaughtLog log;
    export_model(models::lenet(10), described("LeNet", 1, 28), folder_, options);
    return log.count("warning: inference.onnx is written without having been run" + why);
  };
  const auto same = [](torch::Tensor scores) { return scores; };
  EXPECT_EQ(times_told(", as no engine was passed", {}), 1U);
  EXPECT_EQ(times_told(", as it rains; compare", {.no_engine = "it rains"}), 1U);
  EXPECT_EQ(times_told("", {.onnx = false}), 0U);
  EXPECT_EQ(times_told("", {.open_onnx = spoilt(same)}), 0U);
}

TEST_F(Export, SeesAWrongFileThoughAllScoresAreAlmostEqual) {
  const std::string said = refusal(almost_equal(), described("LeNet", 1, 28), {.open_onnx = spoilt(turned)});
  EXPECT_THAT(said, AllOf(HasSubstr("LeNet is not exported"), HasSubstr("its inference.onnx differs"),
                          HasSubstr("range over"), HasSubstr("e-0"), HasSubstr("Nothing was published")));
  EXPECT_FALSE(fs::exists(folder_)) << "there was no such folder before";
}

TEST_F(Export, SeesAWrongFileOfRawScoresAndOfSigmoid) {
  for (const bundle::Activation activation : {bundle::Activation::none, bundle::Activation::sigmoid}) {
    Description description = described("LeNet", 1, 28);
    description.output.activation = activation;
    const auto off = [](const torch::Tensor& scores) { return scores * 1.001; };
    EXPECT_THAT(refusal(models::lenet(10), description, {.open_onnx = spoilt(off)}), HasSubstr("differs"));
  }
}

TEST_F(Export, TellsOfAnOnnxFileThatCannotBeOpenedOrRun) {
  const auto fails = [](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("no such operator"); };
  EXPECT_THAT(refusal(models::lenet(10), described("LeNet", 1, 28), {.open_onnx = spoilt(fails)}),
              AllOf(HasSubstr("inference.onnx cannot compute 2 images of 28 x 28"), HasSubstr("no such operator")));
  const OpenOnnx closed = [](const fs::path&, const Description&) -> Scorer { throw std::runtime_error("torn"); };
  EXPECT_THAT(refusal(models::lenet(10), described("LeNet", 1, 28), {.open_onnx = closed}),
              AllOf(HasSubstr("inference.onnx cannot be read back"), HasSubstr("torn")));
}

TEST_F(Export, SaysWhatItDoes) {
  std::string said;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view text) {
    if (text.starts_with("[export]")) said += std::string(text) + "; ";
  });
  export_model(models::lenet(10), described("LeNet", 1, 28), folder_);
  set_log_sink(before);
  EXPECT_EQ(said,
            "[export] tracing LeNet on images of 1 x 28 x 28; [export] comparing inference.pt with the network; "
            "[export] writing inference.pt and inference.onnx; ");
}

TEST_F(Export, WarnsWhenTheScoresAreTooMuchAlikeToCompare) {
  const torch::NoGradGuard no_grad;
  const auto net = models::lenet(10);
  for (torch::Tensor& parameter : net->parameters()) parameter.zero_();
  std::string said;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view text) { said += text; });
  export_model(net, described("LeNet", 1, 28), folder_);
  set_log_sink(before);
  EXPECT_THAT(said, HasSubstr("LeNet gives all classes and images the same score"));
}

TEST_F(Export, SeesAWrongActivation) {
  const auto doubled = [](const torch::Tensor& scores) {
    return scores.sum(1).sub(1).abs().max().item<float>() < 1e-3F ? scores * 1.01 : scores;  // behind softmax only
  };
  EXPECT_THAT(refusal(models::lenet(10), described("LeNet", 1, 28), {.open_onnx = spoilt(doubled)}),
              AllOf(HasSubstr("its inference.onnx differs"), HasSubstr("activation softmax")));
}

TEST_F(Export, LargeScoresAreCompared) {
  const torch::NoGradGuard no_grad;
  const auto net = models::lenet(10);
  net->named_parameters()["fc.2.weight"].mul_(1e4);
  export_model(net, described("LeNet", 1, 28), folder_);
  EXPECT_THROW(export_model(net, described("LeNet", 1, 28), folder_, {.open_onnx = spoilt(turned)}), UsageError);
}

// --- wrong descriptions and bad weights

TEST_F(Export, RefusesImagesThatDoNotFit) {
  EXPECT_THAT(refusal(models::lenet(10), described("LeNet", 3, 28)), HasSubstr("2 x 3 x 28 x 28"));
}

TEST_F(Export, RefusesNothingAndImagesOfNoSize) {
  EXPECT_THAT(refusal(std::shared_ptr<torch::nn::LinearImpl>(), described("Own", 1, 28)), HasSubstr("no network"));
  EXPECT_THAT(refusal(models::lenet(10), described("LeNet", 1, 0)), HasSubstr("1 x 0 x 0"));
}

TEST_F(Export, RefusesANetworkForTwoImagesOnly) {
  const OwnNet net([](torch::Tensor x) { return flat(x) + torch::zeros({2, 12}); });
  EXPECT_THAT(refusal(net, described("Own", 3, 2)), HasSubstr("works on 2 images of 2 x 2 but not on 3"));
}

TEST_F(Export, RefusesAnotherNumberOfClasses) {
  Description description = described("LeNet", 1, 28);
  description.output.class_num = 1000;
  EXPECT_THAT(refusal(models::lenet(10), description), AllOf(HasSubstr("10 scores"), HasSubstr("1000 classes")));
}

TEST_F(Export, RefusesWeightsThatAreNotFinite) {
  const auto net = models::lenet(10);
  const torch::NoGradGuard no_grad;
  net->named_parameters()["fc.1.bias"][3] = std::nan("");
  EXPECT_THAT(refusal(net, described("LeNet", 1, 28)), HasSubstr("fc.1.bias"));
}

TEST_F(Export, KeepsTheOldFilesWhenItFails) {
  export_model(models::lenet(10), described("LeNet", 1, 28), folder_);
  const std::string before = bytes_of(folder_, "inference.pt");
  EXPECT_THROW(export_model(models::lenet(10), described("LeNet", 3, 28), folder_), UsageError);
  EXPECT_EQ(bytes_of(folder_, "inference.pt"), before);
  EXPECT_EQ(bundle::read(folder_).input.channels, 1);
}

TEST_F(Export, TellsOfAFolderThatCannotBe) {
  const fs::path file = temp_.path() / "file";
  write_file_atomically(file, "");
  EXPECT_THAT([&] { export_model(models::lenet(10), described("LeNet", 1, 28), file); },
              ::testing::ThrowsMessage<SystemError>(HasSubstr(file.string())));
}

TEST_F(Export, KeepsTheOldFilesWhenTheDiskIsFull) {
  export_model(models::lenet(10), described("LeNet", 1, 28), folder_);
  const std::string before = bytes_of(folder_, "inference.pt");
  {
    const FileSizeLimit full(10'000);
    EXPECT_THROW(export_model(models::lenet(5), described("LeNet", 1, 28), folder_), SystemError);
  }
  EXPECT_EQ(bytes_of(folder_, "inference.pt"), before);
  EXPECT_EQ(bundle::read(folder_).output.class_num, 10);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3);
}

TEST_F(Export, PutsTheOldFilesBackWhenOneCannotBeReplaced) {
  export_model(models::lenet(10), described("LeNet", 1, 28), folder_, {.onnx = false});
  const std::string before = bytes_of(folder_, "inference.pt");
  fs::create_directories(folder_ / "inference.onnx" / "in the way");
  EXPECT_THROW(export_model(models::lenet(5), described("LeNet", 1, 28), folder_), SystemError);
  EXPECT_EQ(bytes_of(folder_, "inference.pt"), before);
  EXPECT_EQ(bundle::read(folder_).output.class_num, 10);
  EXPECT_TRUE(fs::exists(folder_ / "inference.onnx" / "in the way"));
}

}  // namespace
}  // namespace trireme::deploy
