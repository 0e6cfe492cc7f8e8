// Each layer on the GPU against libtorch's own in double on the CPU, in every type: values, gradients and running
// statistics. Needs a GPU and libtrireme_cuda.so with kernels.
#include "trireme/nn/fused/gpu_layers.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/plugin.h"
#include "trireme/nn/batch_norm_act.h"
#include "trireme/nn/fused/gpu_operators.h"

namespace trireme::nn::fused {
namespace gpu_layers_test {
namespace {

// Before libtorch asks for its CUDA part.
const Plugin cuda = Plugin::open("libtrireme_cuda.so");
const torch::Device kGpu(torch::kCUDA, 0);

bool is_there() {
  return cuda && torch::cuda::is_available();
}

torch::Tensor image(at::IntArrayRef size) {
  return torch::randn(size, torch::kDouble).contiguous(torch::MemoryFormat::ChannelsLast);
}

/// What a value of the type, and sums of many of them, may be off.
double allowed(at::ScalarType type) {
  return type == torch::kFloat ? 2e-6 : type == torch::kHalf ? 2e-3 : 1.2e-2;
}

double distance(const torch::Tensor& got, const torch::Tensor& expected) {
  const torch::Tensor a = got.detach().to(torch::kCPU, torch::kDouble), b = expected.detach().to(torch::kDouble);
  return ((a - b).norm() / (b.norm() + 1e-30)).item<double>();
}

using Function = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

/// The same function on the GPU and, in double, on the CPU; inputs of `type`, parameters in float. Both read the same
/// numbers, those that `type` can hold.
struct Comparison {
  std::vector<torch::Tensor> inputs, parameters;  // in double
  Function on_gpu, in_double;

  void check(at::ScalarType type, const std::string& what) const {
    std::vector<torch::Tensor> theirs, ours;
    for (const torch::Tensor& input : inputs) {
      const torch::Tensor low = input.to(type);
      theirs.push_back(low.to(torch::kDouble).requires_grad_());
      ours.push_back(low.to(kGpu).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_());
    }
    for (const torch::Tensor& parameter : parameters) {
      theirs.push_back(parameter.to(torch::kFloat).to(torch::kDouble).requires_grad_());
      ours.push_back(parameter.to(torch::kFloat).to(kGpu).requires_grad_());
    }
    const torch::Tensor expected = in_double(theirs), got = on_gpu(ours);
    ASSERT_EQ(got.scalar_type(), type) << what;
    ASSERT_EQ(got.sizes(), expected.sizes()) << what;
    EXPECT_LT(distance(got, expected), allowed(type)) << what << ", values";
    const torch::Tensor gradient = torch::randn_like(expected).to(type);
    const auto wanted = torch::autograd::grad({expected}, theirs, {gradient.to(torch::kDouble)});
    const auto found = torch::autograd::grad({got}, ours, {gradient.to(kGpu)});
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_LT(distance(found[i], wanted[i]), 3 * allowed(type)) << what << ", gradient " << i;
  }
};

/// How often f() runs the operator.
int calls_of(const char* name, const std::function<void()>& f) {
  thread_local std::string wanted;
  thread_local int count = 0;
  wanted = name;
  count = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        count += function.name() == wanted;
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  f();
  at::removeCallback(handle);
  return count;
}

class GpuLayers : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!is_there()) GTEST_SKIP() << "no NVIDIA GPU here";
    torch::manual_seed(3);
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, GpuLayers, ::testing::Values(torch::kFloat, torch::kHalf, torch::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

const std::vector<std::vector<int64_t>>& image_sizes() {
  static const std::vector<std::vector<int64_t>> sizes = {{2, 8, 1, 2},    {3, 24, 5, 7},    {4, 72, 9, 9},
                                                          {2, 288, 7, 7},  {2, 576, 14, 14}, {1, 2048, 7, 7},
                                                          {8, 64, 56, 56}, {5, 16, 33, 35},  {2, 1032, 3, 3}};
  return sizes;
}

torch::nn::BatchNorm2d layer(int64_t channels, at::ScalarType type, const torch::Device& device) {
  torch::nn::BatchNorm2d norm(torch::nn::BatchNorm2dOptions(channels).eps(1e-3).momentum(0.3));
  norm->to(device, type);
  return norm;
}

TEST_P(GpuLayers, NormalisationActivationAndAddition) {
  for (const auto& size : image_sizes())
    for (const Activation act :
         {Activation::none, Activation::relu, Activation::relu6, Activation::hardswish, Activation::silu})
      for (const bool adds : {false, true}) {
        auto ours = layer(size[1], torch::kFloat, kGpu), theirs = layer(size[1], torch::kDouble, torch::kCPU);
        const auto run = [&](torch::nn::BatchNorm2d& norm, bool is_ours) {
          return [&norm, act, adds, is_ours](const std::vector<torch::Tensor>& all) {
            const torch::Tensor residual = adds ? all[1] : torch::Tensor();
            norm->weight = all[all.size() - 2];
            norm->bias = all[all.size() - 1];
            if (is_ours) return gpu::norm_add_act(*norm, all[0], act, residual).value();
            const torch::Tensor z = norm(all[0]);
            return activate(adds ? z + residual : z, act);
          };
        };
        Comparison all{
            .inputs = {image(size) * 2 + 1},
            .parameters = {torch::rand(size[1], torch::kDouble) + 0.5, torch::randn(size[1], torch::kDouble)},
            .on_gpu = run(ours, true),
            .in_double = run(theirs, false)};
        if (adds) all.inputs.push_back(image(size));
        const std::string what = c10::str(at::IntArrayRef(size), " activation ", static_cast<int>(act), " adds ", adds);
        all.check(GetParam(), what);
        EXPECT_LT(distance(ours->running_mean, theirs->running_mean), 1e-5) << what;
        EXPECT_LT(distance(ours->running_var, theirs->running_var), 1e-5) << what;
        EXPECT_EQ(ours->num_batches_tracked.item<int64_t>(), 1);
      }
}

TEST_P(GpuLayers, AMeanFarFromZeroKeepsTheVariance) {
  if (GetParam() != torch::kFloat) return;  // the others cannot hold such numbers
  auto ours = layer(64, torch::kFloat, kGpu), theirs = layer(64, torch::kDouble, torch::kCPU);
  const torch::Tensor x = (image({8, 64, 28, 28}) + 3000).to(torch::kFloat);
  const torch::Tensor got = gpu::norm_add_act(*ours, x.to(kGpu), Activation::none, {}).value();
  EXPECT_LT(distance(got, theirs(x.to(torch::kDouble))), 2e-4);
  EXPECT_LT(distance(ours->running_var, theirs->running_var), 1e-5);
}

TEST_P(GpuLayers, ShowsNumbersThatAreNotFinite) {
  auto norm = layer(16, torch::kFloat, kGpu);
  torch::Tensor x = image({2, 16, 6, 6}).to(GetParam()).to(kGpu);
  x[1][3][2][2] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor y = gpu::norm_add_act(*norm, x, Activation::relu, {}).value();
  EXPECT_TRUE(y.select(1, 3).isnan().all().item<bool>());
  EXPECT_FALSE(y.select(1, 4).isnan().any().item<bool>());
  EXPECT_TRUE(norm->running_var[3].isnan().item<bool>());
}

TEST_P(GpuLayers, GivesTheSameBitsTwice) {
  auto norm = layer(72, torch::kFloat, kGpu);
  const torch::Tensor x = image({8, 72, 28, 28}).to(GetParam()).to(kGpu).requires_grad_();
  const auto run = [&] {
    const torch::Tensor y = gpu::norm_add_act(*norm, x, Activation::hardswish, {}).value();
    std::vector<torch::Tensor> all = torch::autograd::grad({y}, {x, norm->weight}, {y.detach()});
    all.push_back(y);
    return all;
  };
  const auto first = run(), second = run();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], second[i])) << i;
}

TEST_P(GpuLayers, RefusesASecondDerivative) {
  auto norm = layer(16, torch::kFloat, kGpu);
  const torch::Tensor x = image({2, 16, 6, 6}).to(GetParam()).to(kGpu).requires_grad_();
  const torch::Tensor y = gpu::norm_add_act(*norm, x, Activation::relu, {}).value();
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}, {}, true, true), UsageError);
}

TEST_P(GpuLayers, LeavesTheRestToLibtorch) {
  auto norm = layer(12, torch::kFloat, kGpu);
  const auto fuses = [&](const torch::Tensor& x) {
    return gpu::norm_add_act(*norm, x, Activation::relu, {}).has_value();
  };
  const torch::Tensor x = image({2, 12, 6, 6}).to(GetParam()).to(kGpu);
  EXPECT_EQ(fuses(x), GetParam() == torch::kFloat);  // 12 is three vectors of four, but no vectors of eight
  EXPECT_FALSE(fuses(x.contiguous()));
  norm->eval();
  EXPECT_FALSE(fuses(x));
}

TEST_P(GpuLayers, AConvertedSequentialIsFused) {
  torch::nn::Sequential net(torch::nn::BatchNorm2d(16), torch::nn::ReLU());
  convert_batch_norm_act(*net);
  net->to(kGpu);
  const torch::Tensor x = image({2, 16, 6, 6}).to(GetParam()).to(kGpu);
  EXPECT_EQ(calls_of("trireme::gpu_norm_act", [&] { net->forward(x); }), 1);
}

TEST_P(GpuLayers, DepthwiseConvolution) {
  for (const int64_t kernel : {3, 5})
    for (const int64_t stride : {1, 2})
      for (const auto& size : std::vector<std::vector<int64_t>>{
               {2, 8, 7, 7}, {3, 24, 14, 14}, {2, 72, 28, 29}, {2, 576, 7, 7}, {1, 520, 9, 5}, {2, 16, 56, 56}}) {
        torch::nn::Conv2d conv(torch::nn::Conv2dOptions(size[1], size[1], kernel)
                                   .stride(stride)
                                   .padding((kernel - 1) / 2)
                                   .groups(size[1])
                                   .bias(false));
        const Comparison all{.inputs = {image(size)},
                             .parameters = {torch::randn({size[1], 1, kernel, kernel}, torch::kDouble)},
                             .on_gpu =
                                 [&](const std::vector<torch::Tensor>& both) {
                                   conv->weight = both[1];
                                   return gpu::convolve(*conv, both[0]);
                                 },
                             .in_double =
                                 [&](const std::vector<torch::Tensor>& both) {
                                   return torch::conv2d(both[0], both[1], {}, stride, (kernel - 1) / 2, 1, size[1]);
                                 }};
        all.check(GetParam(), c10::str("kernel ", kernel, " stride ", stride, " ", at::IntArrayRef(size)));
      }
}

TEST_P(GpuLayers, AWeightOnAnotherDeviceIsLibtorchsError) {
  for (const int64_t channels : {3, 16}) {  // the first convolution of a network, a depthwise one
    torch::nn::Conv2d conv(
        torch::nn::Conv2dOptions(channels, 16, 3).stride(2).padding(1).groups(channels == 3 ? 1 : 16).bias(false));
    conv->to(GetParam());
    EXPECT_THROW(gpu::convolve(*conv, image({2, channels, 8, 8}).to(GetParam()).to(kGpu)), c10::Error) << channels;
  }
}

TEST_P(GpuLayers, OtherChannelsThanTheWeightsAreLibtorchsError) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(4, 8, 3).stride(2).padding(1).bias(false));
  conv->to(kGpu, GetParam());
  EXPECT_THROW(gpu::convolve(*conv, image({2, 3, 8, 8}).to(GetParam()).to(kGpu)), c10::Error);
}

TEST_P(GpuLayers, TheFirstConvolution) {
  if (GetParam() == torch::kFloat) return;  // libtorch's own
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::autocast::set_autocast_dtype(at::kCUDA, GetParam());
  for (const int64_t kernel : {3, 7})
    for (const bool is_channels_last : {false, true}) {
      const torch::Tensor picture = torch::randn({2, 3, 30, 34}).to(GetParam()).to(torch::kFloat);
      torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 16, kernel).stride(2).padding((kernel - 1) / 2).bias(false));
      torch::NoGradGuard no_grad;
      conv->weight.copy_(conv->weight.to(GetParam()));
      const torch::Tensor weight = conv->weight.to(torch::kDouble).set_requires_grad(true);
      conv->to(kGpu);
      const torch::AutoGradMode with_gradients(true);
      const torch::Tensor expected = torch::conv2d(picture.to(torch::kDouble), weight, {}, 2, (kernel - 1) / 2);
      const torch::Tensor x = picture.to(kGpu);
      const torch::Tensor got =
          gpu::convolve(*conv, is_channels_last ? x.contiguous(torch::MemoryFormat::ChannelsLast) : x);
      EXPECT_EQ(got.scalar_type(), GetParam());
      EXPECT_LT(distance(got, expected), allowed(GetParam())) << kernel;
      const torch::Tensor gradient = torch::randn_like(expected).to(GetParam());
      EXPECT_LT(distance(torch::autograd::grad({got}, {conv->weight}, {gradient.to(kGpu)})[0],
                         torch::autograd::grad({expected}, {weight}, {gradient.to(torch::kDouble)})[0]),
                3 * allowed(GetParam()))
          << kernel;
    }
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCUDA, false);
}

TEST_P(GpuLayers, MaxPooling) {
  for (const auto& [kernel, stride, padding] : std::vector<std::array<int64_t, 3>>{{3, 2, 1}, {2, 2, 0}, {3, 1, 1}})
    for (const auto& size : std::vector<std::vector<int64_t>>{{2, 8, 9, 12}, {3, 64, 28, 28}}) {
      const auto run = [=](const std::vector<torch::Tensor>& all) {
        return all[0].is_cuda() ? gpu::max_pool(all[0], kernel, stride, padding)
                                : torch::max_pool2d(all[0], kernel, stride, padding);
      };
      const Comparison all{.inputs = {image(size)}, .parameters = {}, .on_gpu = run, .in_double = run};
      all.check(GetParam(), c10::str("window ", kernel, " ", stride));
    }
  torch::Tensor x = torch::zeros({1, 8, 4, 4}, GetParam()).to(kGpu).contiguous(torch::MemoryFormat::ChannelsLast);
  x[0][2][1][1] = std::numeric_limits<float>::quiet_NaN();
  const torch::Tensor y = gpu::max_pool(x, 3, 2, 1);
  EXPECT_TRUE(torch::equal(y.isnan(), torch::max_pool2d(x, 3, 2, 1).isnan()));
}

TEST_P(GpuLayers, SqueezeAndExcitation) {
  for (const auto& size : std::vector<std::vector<int64_t>>{{3, 16, 9, 9}, {2, 72, 14, 15}, {4, 576, 7, 7}}) {
    const auto gate_of = [](const torch::Tensor& means, const torch::Tensor& matrix) {
      return torch::hardsigmoid(torch::matmul(means.to(matrix.scalar_type()), matrix));
    };
    const Comparison all{.inputs = {image(size) + 0.5},
                         .parameters = {torch::randn({size[1], size[1]}, torch::kDouble) * 0.02},
                         .on_gpu =
                             [&](const std::vector<torch::Tensor>& both) {
                               const auto squeezed = gpu::SqueezedImage::of(both[0]).value();
                               return squeezed.times(gate_of(squeezed.means(), both[1]));
                             },
                         .in_double =
                             [&](const std::vector<torch::Tensor>& both) {
                               return both[0] * gate_of(both[0].mean({2, 3}), both[1]).view({size[0], size[1], 1, 1});
                             }};
    all.check(GetParam(), c10::str(at::IntArrayRef(size)));
  }
}

TEST_P(GpuLayers, MeansAloneHaveTheirGradient) {
  const torch::Tensor x = image({2, 16, 4, 4}).to(GetParam()).to(kGpu).requires_grad_();
  const auto squeezed = gpu::SqueezedImage::of(x).value();
  const torch::Tensor gradient = torch::autograd::grad({squeezed.means().sum()}, {x})[0];
  EXPECT_LT(distance(gradient, torch::full({2, 16, 4, 4}, 1.0 / 16, torch::kDouble)), 1e-6);
}

}  // namespace
}  // namespace gpu_layers_test
}  // namespace trireme::nn::fused
