#include "trireme/comm/backends/nccl.h"

#include <torch/torch.h>

#include "trireme/comm/backends/cuda_plugin.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/gpu_driver.h"
#include "trireme/core/plugin.h"

namespace trireme::comm {
namespace {

struct Loaded {
  const CudaPlugin* plugin = nullptr;
  std::string problem;
};

const Plugin& library() {
  static const Plugin opened = Plugin::open("libtrireme_cuda.so");
  return opened;
}

// Before main(): libtorch asks for its CUDA part once, at its first use (torch::manual_seed(), a backward on the CPU),
// and never again. What init_parallel_env() loaded after that would not be seen.
const bool loaded_in_time = is_gpu_wanted() && library();

Loaded load() {
  if (!library())
    return {nullptr, library().problem() +
                         "; it is built where libtorch comes with CUDA (setup/setup.sh build on a machine "
                         "with a GPU) or set TRIREME_PLUGIN_DIR"};
  if (!loaded_in_time)
    return {nullptr, "CUDA_VISIBLE_DEVICES hid the GPUs when the program started; set it before the start"};
  const auto* plugin = library().symbol<const CudaPlugin>(kCudaPluginSymbol);
  if (!plugin || plugin->version != kCudaPluginVersion)
    return {nullptr, "libtrireme_cuda.so is of another version of Trireme; build and install both together"};
  if (!torch::cuda::is_available()) return {nullptr, "libtorch finds no usable GPU (driver, CUDA_VISIBLE_DEVICES)"};
  return {plugin, ""};
}

const Loaded& loaded() {
  static const Loaded result = load();
  return result;
}

const CudaPlugin& plugin() {
  if (!loaded().plugin) throw UsageError("no CUDA: {}", loaded().problem);
  return *loaded().plugin;
}

}  // namespace

bool is_gpu_wanted() {
  return trireme::is_gpu_wanted({.selected_gpus = env::get("FLAGS_selected_gpus"),
                                 .cuda_visible_devices = env::get("CUDA_VISIBLE_DEVICES"),
                                 .paddle_backend = env::get("PADDLE_DISTRI_BACKEND"),
                                 .has_driver = has_gpu_driver()});
}

std::optional<std::string> why_no_cuda() {
  if (loaded().plugin) return std::nullopt;
  return loaded().problem;
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclOptions& options) {
  const auto store = make_c10d_store(options.store, options.prefix, options.timeout);
  return plugin().make_nccl(store, options.me.rank, options.me.size, options.device, options.timeout);
}

std::unique_ptr<GpuRecording> make_gpu_recording(int device) {
  return plugin().make_recording(device);
}

std::string gpu_identity(int device) {
  return plugin().identity(device);
}

std::string describe_gpu(int device) {
  return plugin().describe(device);
}

}  // namespace trireme::comm
