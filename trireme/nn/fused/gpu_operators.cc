#include "trireme/nn/fused/gpu_operators.h"

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "trireme/nn/fused/norm_layer.h"

namespace trireme::nn::fused::gpu {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

TORCH_LIBRARY_FRAGMENT(trireme, library) {
  library.def(
      "gpu_norm_act(Tensor x, Tensor weight, Tensor bias, Tensor? residual, Tensor(a!)? running_mean, "
      "Tensor(b!)? running_var, Tensor(c!)? batches, float epsilon, float momentum, int act) -> (Tensor, Tensor)");
  library.def(
      "gpu_norm_act_backward(Tensor dy, Tensor? more_dy, Tensor x, int behind, Tensor? beside, Tensor weight, "
      "Tensor statistics, int act) -> Tensor[]");
  library.def("gpu_depthwise(Tensor x, Tensor weight, int stride) -> Tensor");
  library.def("gpu_depthwise_backward(Tensor dy, Tensor x, Tensor weight, int stride, bool with_input) -> Tensor[]");
  library.def("gpu_max_pool(Tensor x, int kernel, int stride, int padding) -> (Tensor, Tensor)");
  library.def(
      "gpu_max_pool_backward(Tensor dy, Tensor? more_dy, Tensor places, int[] size, int kernel, int stride, "
      "int padding) -> Tensor");
  library.def("gpu_squares(Tensor x, int before, int after, ScalarType type) -> Tensor");
  library.def("gpu_image_sums(Tensor x, Tensor? y, float factor) -> Tensor");
  library.def("gpu_gate(Tensor x, Tensor gates, Tensor? constant) -> Tensor");
}

c10::OperatorHandle find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

bool are_kernels_there() {
  static const bool there =
      find("trireme::gpu_norm_act").hasKernelForDispatchKey(c10::DispatchKey::CUDA);  // libtrireme_cuda.so is loaded
  return there;
}

}  // namespace

bool can_take_any_order(const at::Tensor& x) {
  if (!x.defined() || !x.is_cuda() || x.dim() != 4 || x.numel() == 0) return false;
  const auto type = x.scalar_type();
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  return !is_switched_off() && !torch::jit::tracer::isTracing() && are_kernels_there();
}

bool can_take(const at::Tensor& x) {
  return can_take_any_order(x) && x.is_contiguous(at::MemoryFormat::ChannelsLast);
}

std::tuple<at::Tensor, at::Tensor> norm_act(const NormCall& call) {
  static const auto run =
      find("trireme::gpu_norm_act")
          .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                    const MaybeTensor&, const MaybeTensor&, const MaybeTensor&,
                                                    const MaybeTensor&, double, double, int64_t)>();
  return run.call(call.x, call.weight, call.bias, call.residual, call.running_mean, call.running_var, call.batches,
                  call.epsilon, call.momentum, call.act);
}

std::vector<at::Tensor> norm_act_backward(const NormGradientCall& call) {
  static const auto run =
      find("trireme::gpu_norm_act_backward")
          .typed<std::vector<at::Tensor>(const at::Tensor&, const MaybeTensor&, const at::Tensor&, int64_t,
                                         const MaybeTensor&, const at::Tensor&, const at::Tensor&, int64_t)>();
  return run.call(call.dy, call.more_dy, call.x, static_cast<int64_t>(call.behind), call.beside, call.weight,
                  call.statistics, call.act);
}

at::Tensor depthwise(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  static const auto run =
      find("trireme::gpu_depthwise").typed<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>();
  return run.call(x, weight, stride);
}

std::vector<at::Tensor> depthwise_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                           int64_t stride, bool with_input) {
  static const auto run =
      find("trireme::gpu_depthwise_backward")
          .typed<std::vector<at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, bool)>();
  return run.call(dy, x, weight, stride, with_input);
}

std::tuple<at::Tensor, at::Tensor> max_pool(const at::Tensor& x, const Window& window) {
  static const auto run =
      find("trireme::gpu_max_pool")
          .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, int64_t, int64_t, int64_t)>();
  return run.call(x, window.kernel, window.stride, window.padding);
}

at::Tensor max_pool_backward(const at::Tensor& dy, const MaybeTensor& more_dy, const at::Tensor& places,
                             at::IntArrayRef size, const Window& window) {
  static const auto run = find("trireme::gpu_max_pool_backward")
                              .typed<at::Tensor(const at::Tensor&, const MaybeTensor&, const at::Tensor&,
                                                at::IntArrayRef, int64_t, int64_t, int64_t)>();
  return run.call(dy, more_dy, places, size, window.kernel, window.stride, window.padding);
}

at::Tensor squares(const at::Tensor& x, int64_t before, int64_t after, at::ScalarType type) {
  static const auto run =
      find("trireme::gpu_squares").typed<at::Tensor(const at::Tensor&, int64_t, int64_t, at::ScalarType)>();
  return run.call(x, before, after, type);
}

at::Tensor image_sums(const at::Tensor& x, const MaybeTensor& y, double factor) {
  static const auto run =
      find("trireme::gpu_image_sums").typed<at::Tensor(const at::Tensor&, const MaybeTensor&, double)>();
  return run.call(x, y, factor);
}

at::Tensor gate(const at::Tensor& x, const at::Tensor& gates, const MaybeTensor& constant) {
  static const auto run =
      find("trireme::gpu_gate").typed<at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&)>();
  return run.call(x, gates, constant);
}

}  // namespace trireme::nn::fused::gpu
