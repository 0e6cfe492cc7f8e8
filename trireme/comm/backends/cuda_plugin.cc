// libtrireme_cuda.so: everything that needs libtorch's CUDA part to be there.
#include "trireme/comm/backends/cuda_plugin.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
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

/// Counts the waits of which libtorch warns; passes other warnings on.
class WaitCounter final : public c10::WarningHandler {
 public:
  WaitCounter() : guard_(this), mode_(c10::cuda::warning_state().get_sync_debug_mode()) {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
  }
  ~WaitCounter() override { c10::cuda::warning_state().set_sync_debug_mode(mode_); }
  WaitCounter(const WaitCounter&) = delete;
  WaitCounter& operator=(const WaitCounter&) = delete;

  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing CUDA operation") == std::string::npos)
      c10::WarningHandler::process(warning);
    else
      ++waits_;
  }
  int waits() const { return waits_; }

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
  c10::cuda::SyncDebugMode mode_;
  int waits_ = 0;
};

class CudaRecording final : public GpuRecording {
 public:
  explicit CudaRecording(int device)
      : device_(static_cast<c10::DeviceIndex>(device)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_)) {}

  bool rehearse(const std::function<void()>& work) override {
    wait_for_gpu();
    const c10::cuda::CUDAStreamGuard guard(stream_);
    const WaitCounter counter;
    work();
    wait_for_gpu();
    return counter.waits() == 0;
  }

  // Other threads, such as a loader's, may allocate and copy meanwhile: hence the mode of this thread alone.
  void record(const std::function<void()>& work) override {
    wait_for_gpu();
    c10::cuda::CUDACachingAllocator::emptyCache();  // the recording has memory of its own
    const at::Generator before = at::cuda::detail::getDefaultCUDAGenerator(device_).clone();
    const auto pool = at::cuda::graph_pool_handle();
    const c10::cuda::CUDAStreamGuard guard(stream_);
    try {
      graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      work();
      graph_.capture_end();
    } catch (...) {
      abandon(pool, before);
      throw;
    }
  }

  void replay() override { graph_.replay(); }

 private:
  static void wait_for_gpu() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

  // What capture_begin() or capture_end() leaves undone when it fails itself: the allocator and the generator would go on recording.
  void abandon(at::cuda::MempoolId_t pool, const at::Generator& before) noexcept {
    cudaGraph_t unfinished = nullptr;
    if (cudaStreamEndCapture(stream_, &unfinished) == cudaSuccess && unfinished) (void)cudaGraphDestroy(unfinished);
    (void)cudaGetLastError();
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool);
      at::cuda::detail::getDefaultCUDAGenerator(device_).unsafeGetGeneratorImpl()->graphsafe_set_state(
          before.getIntrusivePtr());
    } catch (const std::exception&) {  // the reason why it failed is on its way already
    }
  }

  c10::DeviceIndex device_;
  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAGraph graph_;
};

std::unique_ptr<GpuRecording> make_recording(int device) {
  return std::make_unique<CudaRecording>(device);
}

}  // namespace
}  // namespace trireme::comm

extern "C" __attribute__((visibility("default"))) const trireme::comm::CudaPlugin trireme_cuda_plugin = {
    trireme::comm::kCudaPluginVersion, trireme::comm::make_nccl, trireme::comm::identity, trireme::comm::describe,
    trireme::comm::make_recording};
