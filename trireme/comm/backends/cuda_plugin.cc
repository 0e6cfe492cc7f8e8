// libtrireme_cuda.so: everything that needs libtorch's CUDA part to be there.
#include "trireme/comm/backends/cuda_plugin.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace trireme::comm {
namespace {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            int device, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  backend->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return backend;
}

std::string identity(int device) {
  char text[32] = {};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(text, sizeof text, device));
  std::string uuid;
  for (const char byte : at::cuda::getDeviceProperties(device)->uuid.bytes)
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return fmt::format("{} {}", text, uuid);
}

std::string version_text(int number) {  // as CUDA counts: 13000 is 13.0
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string describe(int device) {
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device);
  int driver = 0, runtime = 0, nccl = 0;
  C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  ncclGetVersion(&nccl);
  const long cudnn = at::detail::getCUDAHooks().hasCuDNN() ? at::detail::getCUDAHooks().versionCuDNN() : 0;
  return fmt::format("cuda:{} {}, compute capability {}.{}, driver {}, runtime {}, cuDNN {}.{}.{}, NCCL {}.{}.{}",
                     device, properties->name, properties->major, properties->minor, version_text(driver),
                     version_text(runtime), cudnn / 10000, cudnn % 10000 / 100, cudnn % 100, nccl / 10000,
                     nccl % 10000 / 100, nccl % 100);
}

}  // namespace
}  // namespace trireme::comm

extern "C" __attribute__((visibility("default"))) const trireme::comm::CudaPlugin trireme_cuda_plugin = {
    trireme::comm::kCudaPluginVersion, trireme::comm::make_nccl, trireme::comm::identity, trireme::comm::describe};
