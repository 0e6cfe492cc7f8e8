// detect_gpus() and gpu_driver_version(): NVML, loaded at run time so that the launcher needs no NVIDIA package to be
// built or started.
#include <dlfcn.h>

#include <exception>
#include <memory>

#include "trireme/core/gpu_driver.h"
#include "trireme/core/log.h"
#include "trireme/launch/machine/devices.h"

namespace trireme::launch {
namespace {

// The few declarations of nvml.h we use; the ABI of these versioned functions is fixed.
using Device = struct nvmlDevice_st*;
struct Memory {
  unsigned long long total, free, used;
};
constexpr unsigned kUuidSize = 96;
constexpr unsigned kNameSize = 96;
constexpr unsigned kVersionSize = 80;
constexpr int kSuccess = 0;

struct Close {
  void operator()(void* library) const { ::dlclose(library); }
};

class Nvml {
 public:
  /// Nothing when the library is absent, too old or cannot reach the driver.
  static std::unique_ptr<Nvml> open() {
    std::unique_ptr<Nvml> nvml(new Nvml);
    return nvml->load() ? std::move(nvml) : nullptr;
  }
  ~Nvml() {
    if (started_) shutdown_();
  }

  unsigned count() const {
    unsigned number = 0;
    return count_(&number) == kSuccess ? number : 0;
  }

  std::optional<GpuInfo> describe(unsigned index) const {
    Device device = nullptr;
    if (handle_(index, &device) != kSuccess) return std::nullopt;
    char uuid[kUuidSize] = {};
    char name[kNameSize] = {};
    Memory memory{};
    if (uuid_(device, uuid, kUuidSize) != kSuccess) return std::nullopt;
    name_(device, name, kNameSize);
    memory_(device, &memory);
    return GpuInfo{static_cast<int>(index), uuid, name, memory.total, memory.free};
  }

  std::optional<std::string> driver_version() {
    int (*version)(char*, unsigned) = nullptr;
    char text[kVersionSize] = {};
    if (!find("nvmlSystemGetDriverVersion", version) || version(text, kVersionSize) != kSuccess) return std::nullopt;
    return text;
  }

 private:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  template <typename Function>
  bool find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library_.get(), name));
    return function != nullptr;
  }

  bool load() {
    if (!library_) return false;
    int (*init)() = nullptr;
    if (!find("nvmlInit_v2", init) || !find("nvmlShutdown", shutdown_) || !find("nvmlDeviceGetCount_v2", count_) ||
        !find("nvmlDeviceGetHandleByIndex_v2", handle_) || !find("nvmlDeviceGetUUID", uuid_) ||
        !find("nvmlDeviceGetName", name_) || !find("nvmlDeviceGetMemoryInfo", memory_))
      return false;
    started_ = init() == kSuccess;
    return started_;
  }

  std::unique_ptr<void, Close> library_;
  bool started_ = false;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, Device*) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
};

std::vector<GpuInfo> ask_nvml() {
  std::vector<GpuInfo> gpus;
  const auto nvml = Nvml::open();
  if (!nvml) {
    log_warning("[launch] there is an NVIDIA driver, but NVML (libnvidia-ml.so.1) cannot be used: no GPU is counted");
    return gpus;
  }
  const unsigned count = nvml->count();
  for (unsigned index = 0; index < count; ++index)
    if (auto gpu = nvml->describe(index)) gpus.push_back(std::move(*gpu));
  return gpus;
}

}  // namespace

std::vector<GpuInfo> detect_gpus() {
  try {
    if (has_gpu_driver()) return ask_nvml();
  } catch (const std::exception& error) {
    log_warning("[launch] counting GPUs failed: {}", error.what());
  }
  return {};
}

std::optional<std::string> gpu_driver_version() {
  const auto nvml = has_gpu_driver() ? Nvml::open() : nullptr;
  return nvml ? nvml->driver_version() : std::nullopt;
}

}  // namespace trireme::launch
