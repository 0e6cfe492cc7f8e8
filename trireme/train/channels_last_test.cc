#include "trireme/train/channels_last.h"

#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <torch/script.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_variable.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/io/safetensors.h"
#include "trireme/nn/batch_norm_act.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/train/model.h"
#include "trireme/train/step.h"
#include "trireme/train/test_model.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct SmallConvNetImpl : torch::nn::Module {
  explicit SmallConvNetImpl(bool view = false) : views(view) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = dropout(norm(convolution(x)));
    return last(views ? y.view({y.size(0), -1}) : y.flatten(1));
  }
  bool views;
  torch::nn::Conv2d convolution =
      register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)));
  nn::BatchNormAct norm = register_module("norm", nn::BatchNormAct(8));
  torch::nn::Dropout2d dropout = register_module("dropout", torch::nn::Dropout2d(0.0));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8 * 6 * 6, 3));
};
TORCH_MODULE(SmallConvNet);

SmallConvNet small_conv_net(bool view = false) {
  torch::manual_seed(7);
  return SmallConvNet(view);
}

data::TensorDataset images(int64_t count = 24) {
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({count, 3, 6, 6});
  return {x, x.flatten(1).narrow(1, 0, 3).argmax(1)};
}

PrepareOptions options(bool channels_last = true) {
  return {.optimizer = sgd(0.1), .loss = torch::nn::CrossEntropyLoss(), .channels_last = channels_last};
}

Model fitted(const SmallConvNet& net, const PrepareOptions& options) {
  Model model(net);
  model.prepare(options);
  model.fit(images(), {.batch_size = 8, .epochs = 2, .verbose = 0, .shuffle = false});
  return model;
}

/// How often f() runs the fused normalisation, in which only images that lie channels last are computed.
int fused_calls(const std::function<void()>& f) {
  thread_local int count = 0;
  count = 0;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        count += function.name() == std::string("trireme::batch_norm_act");
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  f();
  at::removeCallback(handle);
  return count;
}

torch::Tensor state_of(const SmallConvNet& net) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& tensor : net->parameters()) parts.push_back(tensor.detach().reshape({-1}));
  for (const torch::Tensor& tensor : net->buffers()) parts.push_back(tensor.to(torch::kFloat).reshape({-1}));
  return torch::cat(parts);
}

bool lies_channels_last(const SmallConvNet& net) {
  return net->convolution->weight.is_contiguous(torch::MemoryFormat::ChannelsLast);
}

TEST(ChannelsLast, AFitOfUsualImagesRunsTheFusedLayers) {
  const SmallConvNet net = small_conv_net(), plain = small_conv_net();
  EXPECT_EQ(fused_calls([&] { fitted(net, options()); }), 6);
  EXPECT_TRUE(lies_channels_last(net));
  EXPECT_EQ(fused_calls([&] { fitted(plain, options(false)); }), 0);
  EXPECT_FALSE(lies_channels_last(plain));
  EXPECT_TRUE(state_of(net).allclose(state_of(plain), 1e-4, 1e-5));
}

TEST(ChannelsLast, TheVariableSwitchesItOff) {
  const ScopedVariable off("TRIREME_CHANNELS_LAST", "0");
  const SmallConvNet net = small_conv_net();
  EXPECT_EQ(fused_calls([&] { fitted(net, options()); }), 0);
  EXPECT_FALSE(lies_channels_last(net));
}

TEST(ChannelsLast, ALoopOverAStepHasTheBitsOfAFit) {
  const SmallConvNet net = small_conv_net(), looped = small_conv_net();
  fitted(net, options());
  DataParallel model(looped, init_parallel_env());
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  train::Step step(model, optimizer, {.loss = torch::nn::CrossEntropyLoss()});
  const data::TensorDataset all = images();
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& [x, y] : data::Loader(all, {.batch_size = 8})) step(x, y);
  EXPECT_TRUE(state_of(looped).equal(state_of(net)));
}

TEST(ChannelsLast, AProgramsOwnForwardIsLeftAlone) {
  SmallConvNet net = small_conv_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  train::Step step(net, optimizer);
  step([&] { return net(torch::randn({2, 3, 6, 6})).sum(); });
  EXPECT_FALSE(lies_channels_last(net));
}

TEST(ChannelsLast, PrepareSwitchesItOffAgain) {
  const SmallConvNet net = small_conv_net();
  Model model = fitted(net, options());
  model.prepare(options(false));
  EXPECT_EQ(fused_calls([&] { model.fit(images(), {.batch_size = 8, .epochs = 1, .verbose = 0}); }), 0);
  EXPECT_FALSE(lies_channels_last(net));
}

// The average was made before the first pass gave the weights other memory.
TEST(ChannelsLast, ANetworkThatViewsTrainsInTheUsualOrder) {
  const SmallConvNet net = small_conv_net(true), plain = small_conv_net(true);
  PrepareOptions averaged = options(), plainly = options(false);
  averaged.ema_decay = plainly.ema_decay = 0.5;
  Model model = fitted(net, averaged), other = fitted(plain, plainly);
  EXPECT_FALSE(lies_channels_last(net));
  EXPECT_TRUE(state_of(net).equal(state_of(plain))) << "statistics of the pass that failed do not count";
  const torch::Tensor x = torch::randn({2, 3, 6, 6});
  EXPECT_TRUE(model.predict_batch(x).equal(other.predict_batch(x)));
}

// The pass that failed has drawn a mask: the one that counts draws the same again.
TEST(ChannelsLast, ANetworkThatViewsDrawsTheRandomNumbersOfTheUsualOrder) {
  SmallConvNet net = small_conv_net(true), plain = small_conv_net(true);
  for (SmallConvNet* one : {&net, &plain}) (*one)->dropout->options.p(0.5);
  fitted(net, options());
  fitted(plain, options(false));
  EXPECT_FALSE(lies_channels_last(net));
  EXPECT_TRUE(state_of(net).equal(state_of(plain)));
}

// channels_last.cc knows the error by these words.
TEST(ChannelsLast, LibtorchRefusesAViewInTheExpectedWords) {
  const torch::Tensor x = torch::randn({2, 3, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast);
  try {
    static_cast<void>(x.view({2, -1}));
    FAIL() << "libtorch takes the view now";
  } catch (const c10::Error& error) {
    EXPECT_THAT(std::string(error.what_without_backtrace()), HasSubstr("view size is not compatible"));
  }
}

TEST(ChannelsLast, ANetworkThatViewsIsExportedBeforeItsFirstPass) {
  TempDir folder;
  const SmallConvNet net = small_conv_net(true);
  Model model(net);
  model.prepare(options());
  model.save(folder.path() / "net");  // the first use lays the weights out
  ASSERT_TRUE(lies_channels_last(net));
  const bundle::Description description{.input = {.channels = 3, .height = 6, .width = 6}};
  model.save(folder.path() / "export", {.training = false, .inference = description});
  EXPECT_GT(model.summary({1, 3, 6, 6}).total_params, 0);
  EXPECT_TRUE(lies_channels_last(net));
}

TEST(ChannelsLast, OutputsLieInTheUsualOrder) {
  const auto net = std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(3, 8, 3));
  const train::Forward forward = train::with_channels_last(net, train::Network(net).forward);
  const torch::Tensor x = torch::randn({2, 3, 6, 6});
  EXPECT_FALSE(net->forward(x).is_contiguous());
  EXPECT_TRUE(forward({x})[0].is_contiguous());
  EXPECT_TRUE(forward({x})[0].allclose(net->forward(x), 1e-5, 1e-6));
}

TEST(ChannelsLast, AViewThatComesLaterIsAnErrorWithACure) {
  SmallConvNet net = small_conv_net();
  const train::Forward forward = train::with_channels_last(net.ptr(), train::Network(net).forward);
  forward({torch::randn({2, 3, 6, 6})});
  net->views = true;
  EXPECT_THAT(
      [&] {
        forward({torch::randn({2, 3, 6, 6})});
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("x.reshape(…)"), HasSubstr(".channels_last = false"))));
}

TEST(ChannelsLast, FilesHaveTheUsualOrder) {
  TempDir folder;
  const SmallConvNet net = small_conv_net();
  Model model = fitted(net, options());
  model.save(folder.path() / "net");
  const torch::Tensor saved = io::load_safetensors(folder.path() / "net.safetensors")["convolution.weight"];
  EXPECT_TRUE(saved.is_contiguous());
  EXPECT_TRUE(saved.equal(net->convolution->weight));
  const bundle::Description description{.input = {.channels = 3, .height = 6, .width = 6}};
  model.save(folder.path() / "export", {.training = false, .inference = description});
  for (const torch::Tensor& weight : torch::jit::load(folder.path() / "export" / bundle::kTorchFile).parameters())
    EXPECT_TRUE(weight.is_contiguous());
  Model other(small_conv_net());
  other.prepare(options(false));
  other.load(folder.path() / "net");
  EXPECT_TRUE(flat(other).equal(flat(model)));
}

TEST(ChannelsLast, NetworksWithoutConvolutionsGetTheirInputsAsTheyAre) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(2, 2);
  const torch::Tensor x = torch::randn({2, 3, 4, 2});
  torch::Tensor seen;
  train::with_channels_last(net, [&](const train::Tensors& inputs) {
    seen = inputs[0];
    return inputs;
  })({x});
  EXPECT_TRUE(seen.is_same(x));
}

}  // namespace
}  // namespace trireme
