// Networks that users bring: recurrent ones, transformers, other types than float32, several outputs, other sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/test_support.h"
#include "trireme/deploy/export/export.h"
#include "trireme/deploy/export/lower.h"
#include "trireme/models/models.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using bundle::Activation;
using bundle::Description;
using ::testing::AllOf, ::testing::HasSubstr;
using Tensor = torch::Tensor;

constexpr int kSide = 8;

/// Layers under names, and a function over them.
struct PartsImpl : nn::Module {
  template <typename Layer>
  Layer add(const std::string& name, Layer layer) {
    return register_module(name, layer);
  }
};

class Exported : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  Description described(Activation activation = Activation::none) const {
    return {.model_name = "Own",
            .input = {.channels = 3, .height = kSide, .width = kSide},
            .output = {.activation = activation}};
  }
  Network network(const std::function<Outputs(const Tensor&)>& forward) const { return {parts_, forward}; }
  Outputs outputs(const Tensor& images) const {
    torch::jit::Module module = torch::jit::load((folder_ / "inference.pt").string());
    const torch::jit::IValue result = module.forward({images});
    if (result.isTensor()) return {result.toTensor()};
    Outputs all;
    for (const auto& each : result.toTupleRef().elements()) all.push_back(each.toTensor());
    return all;
  }
  /// What is exported gives what the network gives, for numbers of images that were not traced, too.
  void expect_equal(const Network& net, double tolerance = 1e-5, at::ScalarType type = torch::kFloat) {
    const torch::NoGradGuard no_grad;
    for (const int64_t batch : {1, 2, 3, 5}) {
      const Tensor images = torch::randn({batch, 3, kSide, kSide});
      const Outputs expected = net.forward(images.to(type)), found = outputs(images);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << batch << " images";
        EXPECT_TRUE(torch::allclose(found[i], expected[i].to(found[i].scalar_type()), tolerance, tolerance)) << batch;
      }
    }
  }
  void export_and_compare(const std::function<Outputs(const Tensor&)>& forward, const Options& options = {}) {
    const Network net = network(forward);
    net.module->eval();
    export_model(net, described(), folder_, options);
    expect_equal(net);
  }

  TempDir temp_;
  fs::path folder_ = temp_.path() / "inference";
  std::shared_ptr<PartsImpl> parts_ = std::make_shared<PartsImpl>();
};

Tensor picture_rows(const Tensor& images) {
  return images.permute({0, 2, 1, 3}).flatten(2);  // N x 8 x 24
}

TEST_F(Exported, LstmTakesAnyNumberOfImages) {
  auto lstm = parts_->add("lstm", nn::LSTM(nn::LSTMOptions(24, 6).num_layers(2).batch_first(true).bidirectional(true)));
  export_and_compare(
      [=](const Tensor& x) mutable { return Outputs{std::get<0>(lstm->forward(picture_rows(x))).select(1, -1)}; });
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 3) << "nothing hidden remains";
}

TEST_F(Exported, GruTakesAnyNumberOfImages) {
  auto gru = parts_->add("gru", nn::GRU(nn::GRUOptions(24, 6)));
  export_and_compare([=](const Tensor& x) mutable {
    auto [y, state] = gru->forward(picture_rows(x).transpose(0, 1));
    return Outputs{y, state};
  });
}

/// libtorch's kernel reads beyond a state that is made for fewer images: the exported network must never be run so.
TEST_F(Exported, AStateForAFixedNumberOfImagesIsRefusedBeforeItIsRun) {
  auto lstm = parts_->add("lstm", nn::LSTM(nn::LSTMOptions(24, 6).batch_first(true)));
  const auto forward = [=](const Tensor& x) mutable {
    const auto made = [&] { return torch::full({1, x.size(0), 6}, 1.0 / static_cast<double>(x.size(0))); };
    return Outputs{std::get<0>(lstm->forward(picture_rows(x), std::make_tuple(made(), made())))};
  };
  EXPECT_THAT(refusal<UsageError>([&] { export_model(network(forward), described(), folder_); }),
              AllOf(HasSubstr("aten::full gets 0.5 for 2 images"), HasSubstr("is not known")));
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(Exported, MultiheadAttention) {
  auto attention = parts_->add("attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(24, 4)));
  export_and_compare([=](const Tensor& x) mutable {
    const Tensor tokens = picture_rows(x).transpose(0, 1);
    auto [y, weights] = attention->forward(tokens, tokens, tokens);
    return Outputs{y, weights};
  });
}

TEST_F(Exported, TransformerEncoderLayerWithAClassToken) {
  auto layer =
      parts_->add("layer", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(24, 4).dim_feedforward(32)));
  const Tensor token = parts_->register_parameter("token", torch::randn({1, 1, 24}));
  export_and_compare([=](const Tensor& x) mutable {
    const Tensor tokens = torch::cat({token.expand({x.size(0), -1, -1}), picture_rows(x)}, 1);
    return Outputs{layer->forward(tokens.transpose(0, 1)).select(0, 0)};
  });
}

TEST_F(Exported, ContiguousBeforeAView) {
  auto layer = parts_->add("layer", nn::Linear(192, 4));
  export_and_compare([=](const Tensor& x) mutable {
    return Outputs{layer->forward(x.permute({0, 2, 3, 1}).contiguous().view({x.size(0), -1}))};
  });
}

TEST_F(Exported, ExpandCloneBeforeAView) {
  auto layer = parts_->add("layer", nn::Linear(6, 4));
  export_and_compare([=](const Tensor& x) mutable {
    const Tensor means = x.mean({2, 3}).unsqueeze(2).expand({-1, -1, 2});
    return Outputs{layer->forward(means.clone().view({-1, 6}))};
  });
}

TEST_F(Exported, OutputsOfAnyRankAndNumber) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 5, 3));
  const auto forward = [=](const Tensor& x) mutable -> Outputs {
    const Tensor y = conv->forward(x);
    return {y, y.argmax(1), y.flatten(1).amax({1})};
  };
  export_and_compare(forward);
  const Description read = bundle::read(folder_);
  EXPECT_EQ(read.output.class_num, 0);
  EXPECT_EQ(read.output.shapes, (std::vector<std::vector<int64_t>>{{-1, 5, 6, 6}, {-1, 6, 6}, {-1}}));
  EXPECT_THAT(refusal<UsageError>([&] { export_model(network(forward), described(Activation::softmax), folder_); }),
              AllOf(HasSubstr("an output of 2 x 5 x 6 x 6 and 2 x 6 x 6 and 2; expected 2 rows of scores"),
                    HasSubstr("set output.activation to none")));
}

TEST_F(Exported, APairOfATupleOfTensors) {
  struct PairImpl : nn::Module {
    PairImpl() { register_module("fc", fc); }
    std::pair<Tensor, Tensor> forward(const Tensor& x) { return {fc->forward(x.flatten(1)), x.mean({1})}; }
    nn::Linear fc{192, 3};
  };
  const auto pair = std::make_shared<PairImpl>();
  export_model(pair, described(), folder_);
  expect_equal(pair);
}

TEST_F(Exported, DoubleWeights) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 3));
  auto norm = parts_->add("norm", nn::BatchNorm2d(4));
  parts_->to(torch::kDouble);
  parts_->eval();
  const Network net = network([=](const Tensor& x) mutable -> Outputs { return {norm->forward(conv->forward(x))}; });
  export_model(net, described(), folder_);
  EXPECT_EQ(outputs(torch::zeros({1, 3, kSide, kSide}))[0].scalar_type(), torch::kFloat);
  expect_equal(net, 1e-6, torch::kDouble);
}

TEST_F(Exported, Bfloat16Weights) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 3));
  auto layer = parts_->add("layer", nn::Linear(144, 3));
  parts_->to(torch::kBFloat16);
  const Network net =
      network([=](const Tensor& x) mutable -> Outputs { return {layer->forward(conv->forward(x).relu().flatten(1))}; });
  EXPECT_THAT(
      refusal<UsageError>([&] { export_model(net, described(), folder_); }),
      AllOf(HasSubstr("weights of type BFloat16"), HasSubstr("net->to(torch::kFloat)"), HasSubstr(".onnx = false")));
  export_model(net, described(), folder_, {.onnx = false});
  expect_equal(net, 1e-2, torch::kBFloat16);
}

TEST_F(Exported, WritingIntoATensorIsRefusedWithFittingAdvice) {
  auto layer = parts_->add("layer", nn::Linear(192, 4));
  const Network net = network([=](const Tensor& x) mutable -> Outputs {
    const Tensor y = x.flatten(1).clone();
    std::fill_n(y.data_ptr<float>(), 7, x.data_ptr<float>()[100]);  // no operator: not recorded
    return {layer->forward(y)};
  });
  EXPECT_THAT(refusal<UsageError>([&] { export_model(net, described(), folder_); }),
              AllOf(HasSubstr("its inference.pt differs"), HasSubstr("writes into a part of a tensor")));
}

// --- other sizes

using AnySize = Exported;

TEST_F(AnySize, OfANetworkThatPoolsItsPictures) {
  const auto net = models::create("ResNet18", {.class_num = 7});
  net->eval();
  Description description = described(Activation::softmax);
  export_model(net, description, folder_, {.any_size = true});
  const Tensor images = torch::randn({2, 3, 40, 72});
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(outputs(images)[0], net->forward(images).softmax(1), 1e-4, 1e-5));
  const std::string onnx = read_file(folder_ / "inference.onnx").value();
  EXPECT_THAT(onnx, AllOf(HasSubstr("height"), HasSubstr("width")));
}

TEST_F(AnySize, WorksOutSizesInAView) {
  auto layer = parts_->add("layer", nn::Linear(12, 5));
  const std::function<Outputs(const Tensor&)> forward = [=](const Tensor& x) mutable -> Outputs {
    const int64_t batch = x.size(0), high = x.size(2) / 2, wide = x.size(3) / 2;
    const Tensor cells = x.view({batch, 3, high, 2, wide, 2}).permute({0, 2, 4, 1, 3, 5});
    return {layer->forward(cells.contiguous().view({batch, high * wide, 12}))};
  };
  export_and_compare(forward, {.any_size = true});
  const Tensor images = torch::randn({3, 3, 12, 6});
  EXPECT_TRUE(torch::allclose(outputs(images)[0], forward(images)[0], 1e-5, 1e-5));
}

TEST_F(AnySize, HalvesAreRoundedAsTheNetworkDoes) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 1));
  const std::function<Outputs(const Tensor&)> forward = [=](const Tensor& x) mutable -> Outputs {
    const std::vector<int64_t> down = {x.size(2) / 2, x.size(3) / 2}, up = {(x.size(2) + 1) / 2, (x.size(3) + 2) / 3};
    const Tensor y = conv->forward(x);
    return {torch::upsample_nearest2d(y, down), torch::upsample_nearest2d(y, up)};
  };
  export_and_compare(forward, {.any_size = true});
  for (const int64_t side : {9, 10, 11, 12}) {
    const Tensor images = torch::randn({2, 3, side, side + 5});
    const Outputs expected = forward(images), found = outputs(images);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(found[i].equal(expected[i])) << side;
  }
}

TEST_F(AnySize, OfOtherOperatorsForOddSizesIsNot) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 1));
  const CaughtLog log;
  export_and_compare(
      [=](const Tensor& x) mutable -> Outputs {
        return {conv->forward(x.size(2) % 2 == 0 ? x : torch::constant_pad_nd(x, {0, 0, 0, 1}))};
      },
      {.any_size = true});
  EXPECT_EQ(log.count("images of 8 x 8 only: forward() takes other operators for 3 images of 73 x 41"), 1U);
}

TEST_F(AnySize, SaysWhyNot) {
  const auto net = models::lenet(10);
  const Description description{.model_name = "LeNet", .input = {.channels = 1, .height = 28, .width = 28}};
  const CaughtLog log;
  export_model(net, description, folder_, {.any_size = true});
  EXPECT_EQ(
      log.count("the exported files take images of 28 x 28 only: the network works on 2 images of 28 x 28 but not "
                "on 2 images of 60 x 92"),
      1U);
  EXPECT_THAT(read_file(folder_ / "inference.onnx").value(), ::testing::Not(HasSubstr("height")));
}

TEST_F(AnySize, IsNotTakenForGrantedBeyondTheSizesFromWhichItWasWorkedOut) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 1));
  const CaughtLog log;
  export_and_compare(
      [=](const Tensor& x) mutable -> Outputs {
        return {conv->forward(x.slice(2, 0, std::min<int64_t>(x.size(2), 80)))};
      },
      {.any_size = true});
  EXPECT_EQ(log.count("images of 8 x 8 only: operator aten::slice gets 8 for 2 images of 8 x 8 but 80 for 2 images of "
                      "107 x 139, and how that follows from the images is not known"),
            1U);
}

TEST_F(AnySize, ANumberThatDiffersOnlyForTheSizeHeldOutIsSeen) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 1));
  const CaughtLog log;
  export_and_compare(
      [=](const Tensor& x) mutable -> Outputs { return {conv->forward(x) * (x.size(2) > 80 ? 2.0 : 1.0)}; },
      {.any_size = true});
  EXPECT_EQ(log.count("images of 8 x 8 only: operator aten::mul gets"), 1U);
}

/// `upper` has as many rows as the state, except for the size that is held out: there it has 80, and libtorch's kernel
/// would read 108 from a state made for 80.
TEST_F(AnySize, AStateThatIsTooSmallForTheSizeHeldOutIsNotRun) {
  auto lstm = parts_->add("lstm", nn::LSTM(nn::LSTMOptions(3, 6)));
  const CaughtLog log;
  export_and_compare(
      [=](const Tensor& x) mutable -> Outputs {
        const Tensor rows = torch::constant_pad_nd(x, {0, 0, 0, 1}).mean({3}).permute({0, 2, 1});  // N x (H + 1) x 3
        const Tensor upper = rows.slice(1, 0, 80);
        const Tensor state = torch::zeros({1, x.size(2) + 1, 6});
        return {std::get<0>(lstm->forward(rows, std::make_tuple(state, state))), upper};
      },
      {.any_size = true});
  EXPECT_EQ(log.count("images of 8 x 8 only: operator aten::zeros gets 9 for 2 images of 8 x 8 but 108 for 2 images of "
                      "107 x 139, and how that follows from the images is not known"),
            1U);
  EXPECT_EQ(log.count("inference.pt differs from the network by"), 1U) << "only the files of one size are run";
}

TEST_F(AnySize, FallsBackWhereOnnxNeedsNumbers) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 1));
  const CaughtLog log;
  export_and_compare(
      [=](const Tensor& x) mutable -> Outputs {
        return {torch::adaptive_avg_pool2d(conv->forward(x), {2, 4})};
      },
      {.any_size = true});
  EXPECT_EQ(log.count("images of 8 x 8 only: operator aten::adaptive_avg_pool2d pools to 2 x 4"), 1U);
}

TEST_F(AnySize, IsComparedInOnnxToo) {
  auto conv = parts_->add("conv", nn::Conv2d(3, 4, 3));
  const std::function<Outputs(const Tensor&)> forward = [=](const Tensor& x) mutable -> Outputs {
    return {conv->forward(x)};
  };
  std::vector<std::vector<int64_t>> seen;
  const OpenOnnx opener = [&](const fs::path&, const Description& description) -> Scorer {
    return [&, description, forward](const Tensor& images) mutable {
      EXPECT_EQ(images.size(2), description.input.height);
      seen.push_back({images.size(0), images.size(2), images.size(3)});
      return forward(images);
    };
  };
  export_model(network(forward), described(), folder_, {.any_size = true, .open_onnx = opener});
  EXPECT_THAT(seen, ::testing::ElementsAre(std::vector<int64_t>{2, 8, 8}, std::vector<int64_t>{3, 8, 8},
                                           std::vector<int64_t>{1, 8, 8}, std::vector<int64_t>{2, 40, 72},
                                           std::vector<int64_t>{3, 73, 41}, std::vector<int64_t>{2, 107, 139}));
}

}  // namespace
}  // namespace trireme::deploy
