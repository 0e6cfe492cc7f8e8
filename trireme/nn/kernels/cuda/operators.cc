// The CUDA side of the operators that nn/fused/gpu_operators.cc declares. Part of libtrireme_cuda.so: libtorch's
// dispatcher brings both together when that is loaded.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "trireme/nn/kernels/cuda/depthwise.h"
#include "trireme/nn/kernels/cuda/gate.h"
#include "trireme/nn/kernels/cuda/norm_act.h"
#include "trireme/nn/kernels/cuda/pooling.h"
#include "trireme/nn/kernels/cuda/squares.h"

namespace trireme::nn::kernels::cuda {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

Type type_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kHalf:
      return Type::float16;
    case at::kBFloat16:
      return Type::bfloat16;
    default:
      return Type::float32;
  }
}

Stream stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

const void* data(const at::Tensor& x) {
  return x.const_data_ptr();
}
const void* data(const MaybeTensor& x) {
  return x ? x->const_data_ptr() : nullptr;
}
template <typename T>
T* mutable_data(const MaybeTensor& x) {
  return x ? x->mutable_data_ptr<T>() : nullptr;
}

at::Tensor floats(const at::Tensor& like, at::IntArrayRef shape) {
  return at::empty(shape, like.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous));
}

NormShape norm_shape(const at::Tensor& x, int64_t act) {
  return {.rows = x.numel() / x.size(1), .channels = x.size(1), .type = type_of(x), .act = static_cast<Act>(act)};
}

std::tuple<at::Tensor, at::Tensor> norm_act(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                            const MaybeTensor& residual, const MaybeTensor& running_mean,
                                            const MaybeTensor& running_var, const MaybeTensor& batches, double epsilon,
                                            double momentum, int64_t act) {
  const c10::cuda::CUDAGuard guard(x.device());
  const NormShape shape = norm_shape(x, act);
  const at::Tensor y = at::empty_like(x), statistics = floats(x, {kStatistics, shape.channels}),
                   scratch = floats(x, {norm_scratch(shape)});
  norm_act_forward(shape,
                   {.x = data(x),
                    .residual = data(residual),
                    .weight = weight.const_data_ptr<float>(),
                    .bias = bias.const_data_ptr<float>(),
                    .running_mean = mutable_data<float>(running_mean),
                    .running_var = mutable_data<float>(running_var),
                    .batches = mutable_data<int64_t>(batches),
                    .epsilon = epsilon,
                    .momentum = momentum,
                    .y = y.mutable_data_ptr(),
                    .statistics = statistics.mutable_data_ptr<float>(),
                    .scratch = scratch.mutable_data_ptr<float>()},
                   stream_of(x));
  return {y, statistics};
}

/// dx, the gradients of weight and bias, and, with something behind it, the gradient in front of the activation.
std::vector<at::Tensor> norm_act_gradients(const at::Tensor& dy, const MaybeTensor& more_dy, const at::Tensor& x,
                                           int64_t behind, const MaybeTensor& beside, const at::Tensor& weight,
                                           const at::Tensor& statistics, int64_t act) {
  const c10::cuda::CUDAGuard guard(x.device());
  const NormShape shape = norm_shape(x, act);
  std::vector<at::Tensor> results = {at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
  if (static_cast<Behind>(behind) != Behind::nothing) results.push_back(at::empty_like(x));
  const at::Tensor scratch = floats(x, {norm_scratch(shape)});
  norm_act_backward(shape,
                    {.dy = data(dy),
                     .more_dy = data(more_dy),
                     .x = data(x),
                     .behind = static_cast<Behind>(behind),
                     .beside = data(beside),
                     .statistics = statistics.const_data_ptr<float>(),
                     .dx = results[0].mutable_data_ptr(),
                     .d_residual = results.size() > 3 ? results[3].mutable_data_ptr() : nullptr,
                     .d_weight = results[1].mutable_data_ptr<float>(),
                     .d_bias = results[2].mutable_data_ptr<float>(),
                     .scratch = scratch.mutable_data_ptr<float>()},
                    stream_of(x));
  return results;
}

DepthwiseShape depthwise_shape(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rows, int64_t stride) {
  return {.images = x.size(0),
          .channels = x.size(1),
          .height = x.size(2),
          .width = x.size(3),
          .kernel = static_cast<int>(weight.size(2)),
          .stride = static_cast<int>(stride),
          .type = type_of(x),
          .weight_type = type_of(rows)};
}

/// [channels, kernel * kernel] one after the other, of a type that the kernels read.
at::Tensor in_rows(const at::Tensor& weight, const at::Tensor& x) {
  const bool reads = weight.scalar_type() == at::kFloat || weight.scalar_type() == x.scalar_type();
  return (reads ? weight : weight.to(at::kFloat)).reshape({weight.size(0), -1}).contiguous();
}

at::Tensor depthwise(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = in_rows(weight, x);
  const DepthwiseShape shape = depthwise_shape(x, weight, rows, stride);
  TORCH_CHECK(depthwise_fits(shape), "depthwise convolution: ", x.sizes(), " is more than 2^30 tiles of pixels");
  TORCH_CHECK((shape.kernel == 3 || shape.kernel == 5) && (stride == 1 || stride == 2),
              "depthwise convolution: kernel ", shape.kernel, " and stride ", stride,
              "; there are kernels for 3 and 5, at strides of 1 and 2");
  at::Tensor y = at::empty({shape.images, shape.channels, shape.out_height(), shape.out_width()},
                           x.options().memory_format(at::MemoryFormat::ChannelsLast));
  depthwise_forward(shape, data(x), data(rows), y.mutable_data_ptr(), stream_of(x));
  return y;
}

/// The gradient of the weight, and that of x where it is wanted.
std::vector<at::Tensor> depthwise_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                            int64_t stride, bool with_input) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor rows = in_rows(weight, x);
  const DepthwiseShape shape = depthwise_shape(x, weight, rows, stride);
  at::Tensor d_rows = at::empty_like(rows);
  const at::Tensor scratch = floats(x, {depthwise_scratch(shape)});
  depthwise_weight_gradient(shape, data(dy), data(x), d_rows.mutable_data_ptr(), scratch.mutable_data_ptr<float>(),
                            stream_of(x));
  std::vector<at::Tensor> results = {d_rows.view(weight.sizes()).to(weight.scalar_type())};
  if (!with_input) return results;
  results.push_back(at::empty_like(x));
  depthwise_input_gradient(shape, data(dy), data(rows), results[1].mutable_data_ptr(), stream_of(x));
  return results;
}

PoolShape pool_shape(const at::Tensor& x, at::IntArrayRef size, int64_t kernel, int64_t stride, int64_t padding) {
  return {.images = size[0],
          .channels = size[1],
          .height = size[2],
          .width = size[3],
          .kernel = static_cast<int>(kernel),
          .stride = static_cast<int>(stride),
          .padding = static_cast<int>(padding),
          .type = type_of(x)};
}

/// y, and where in its window each maximum stands.
std::tuple<at::Tensor, at::Tensor> max_pool(const at::Tensor& x, int64_t kernel, int64_t stride, int64_t padding) {
  const c10::cuda::CUDAGuard guard(x.device());
  const PoolShape shape = pool_shape(x, x.sizes(), kernel, stride, padding);
  at::Tensor y = at::empty({shape.images, shape.channels, shape.out_height(), shape.out_width()},
                           x.options().memory_format(at::MemoryFormat::ChannelsLast));
  at::Tensor places = at::empty_like(y, y.options().dtype(at::kByte));
  max_pool_forward(shape, data(x), y.mutable_data_ptr(), places.mutable_data_ptr<uint8_t>(), stream_of(x));
  return {y, places};
}

at::Tensor max_pool_gradient(const at::Tensor& dy, const MaybeTensor& more_dy, const at::Tensor& places,
                             at::IntArrayRef size, int64_t kernel, int64_t stride, int64_t padding) {
  const c10::cuda::CUDAGuard guard(dy.device());
  at::Tensor dx = at::empty(size, dy.options().memory_format(at::MemoryFormat::ChannelsLast));
  max_pool_backward(pool_shape(dy, size, kernel, stride, padding), data(dy), data(more_dy),
                    places.const_data_ptr<uint8_t>(), dx.mutable_data_ptr(), stream_of(dy));
  return dx;
}

at::Tensor squares(const at::Tensor& x, int64_t before, int64_t after, at::ScalarType type) {
  const c10::cuda::CUDAGuard guard(x.device());
  SquaresShape shape{.images = x.size(0),
                     .channels = x.size(1),
                     .height = x.size(2),
                     .width = x.size(3),
                     .before = before,
                     .after = after,
                     .from = type_of(x)};
  std::copy_n(x.strides().begin(), 4, shape.strides);
  at::Tensor y = at::empty({shape.images, kSquareChannels, shape.out_height(), shape.out_width()},
                           x.options().dtype(type).memory_format(at::MemoryFormat::ChannelsLast));
  shape.to = type_of(y);
  to_squares(shape, data(x), y.mutable_data_ptr(), stream_of(x));
  return y;
}

GateShape gate_shape(const at::Tensor& x) {
  return {.images = x.size(0), .pixels = x.size(2) * x.size(3), .channels = x.size(1), .type = type_of(x)};
}

at::Tensor sums(const at::Tensor& x, const MaybeTensor& y, double factor) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor result = floats(x, {x.size(0), x.size(1)});
  image_sums(gate_shape(x), data(x), data(y), static_cast<float>(factor), result.mutable_data_ptr<float>(),
             stream_of(x));
  return result;
}

at::Tensor gated(const at::Tensor& x, const at::Tensor& gates, const MaybeTensor& constant) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor y = at::empty_like(x);
  gate(gate_shape(x), data(x), gates.const_data_ptr<float>(), constant ? constant->const_data_ptr<float>() : nullptr,
       y.mutable_data_ptr(), stream_of(x));
  return y;
}

TORCH_LIBRARY_IMPL(trireme, CUDA, library) {
  library.impl("gpu_norm_act", TORCH_FN(norm_act));
  library.impl("gpu_norm_act_backward", TORCH_FN(norm_act_gradients));
  library.impl("gpu_depthwise", TORCH_FN(depthwise));
  library.impl("gpu_depthwise_backward", TORCH_FN(depthwise_gradients));
  library.impl("gpu_max_pool", TORCH_FN(max_pool));
  library.impl("gpu_max_pool_backward", TORCH_FN(max_pool_gradient));
  library.impl("gpu_squares", TORCH_FN(squares));
  library.impl("gpu_image_sums", TORCH_FN(sums));
  library.impl("gpu_gate", TORCH_FN(gated));
}

}  // namespace
}  // namespace trireme::nn::kernels::cuda
