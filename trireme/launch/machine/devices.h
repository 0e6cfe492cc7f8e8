// Which GPUs this machine shows us, and how processes share them.
//
//   std::vector<GpuInfo> present;
//   if (may_use_gpus(request, cuda_visible_devices)) present = detect_gpus();
//   DeviceChoice choice = choose_devices(request, visible_devices(cuda_visible_devices, present), cores, present);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// One GPU as NVML describes it.
struct GpuInfo {
  int index = 0;     // the absolute id
  std::string uuid;  // "GPU-8f6c…"
  std::string name;
  uint64_t memory_total = 0;  // bytes
  uint64_t memory_free = 0;
};

/// False when the request or CUDA_VISIBLE_DEVICES rules GPUs out, so that NVML (slow to start) need not be asked.
bool may_use_gpus(const Request& request, const std::optional<std::string>& cuda_visible_devices);

/// The GPUs of this machine in NVML's order (PCI bus). Empty without an NVIDIA driver; never throws. The library is
/// loaded only when the driver's device file exists.
std::vector<GpuInfo> detect_gpus();

/// "580.159.04"; nothing without an NVIDIA driver, or when NVML cannot be used.
std::optional<std::string> gpu_driver_version();

/// What a CUDA program would see, as CUDA reads the variable: unset or "all" is everything; "" or "-1" nothing; a list
/// ends before its first invalid entry; a repeated entry voids it; UUIDs may be shortened while they stay unique.
/// Numbers come back as numbers, UUIDs in full.
std::vector<std::string> visible_devices(const std::optional<std::string>& cuda_visible_devices,
                                         const std::vector<GpuInfo>& present);

struct DeviceChoice {
  std::vector<std::string> devices;  // as CUDA_VISIBLE_DEVICES will name them; empty: CPU
  int processes = 1;
  std::string warning;  // for the user, when the choice is legal but unusual
};

/// How many processes this node runs, on which of the `visible` devices.
///   nothing said     one process for each device, else one on the CPU
///   -n N             the first N visible devices; more processes than devices: shared in turn, with a warning
///   --gpus           those, in that order; with -n fewer than devices each process gets an equal block
///   -n gpu | cpu     one process for each device | for each core, on the CPU; "auto" is gpu where there is one
/// `present` lets a number stand for a GPU that is visible by UUID and the other way round.
/// Throws UsageError: a device that is not visible, unequal blocks, `-n gpu` without a GPU.
DeviceChoice choose_devices(const Request& request, const std::vector<std::string>& visible, int cores,
                            const std::vector<GpuInfo>& present = {});

}  // namespace trireme::launch
