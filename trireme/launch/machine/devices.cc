#include "trireme/launch/machine/devices.h"

#include <algorithm>
#include <numeric>

#include "trireme/core/error.h"
#include "trireme/core/gpu_driver.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_uuid(std::string_view id) {
  return id.starts_with("GPU-") || id.starts_with("MIG-");
}

Names all_indices(const std::vector<GpuInfo>& present) {
  Names names;
  for (const GpuInfo& gpu : present) names.push_back(std::to_string(gpu.index));
  return names;
}

// CUDA reads numbers as strtoul does: "1gpu" is 1.
std::optional<std::string> resolve_index(std::string_view entry, const std::vector<GpuInfo>& present) {
  const size_t length = std::min(entry.find_first_not_of("0123456789"), entry.size());
  const auto index = parse_int(entry.substr(0, length), 0, 1'000'000);
  for (const GpuInfo& gpu : present)
    if (index && gpu.index == *index) return std::to_string(gpu.index);
  return std::nullopt;
}

// A UUID or a unique beginning of one, in full. NVML's list has no MIG instances: those are taken on trust.
std::optional<std::string> resolve_uuid(const std::string& entry, const std::vector<GpuInfo>& present) {
  if (entry.starts_with("MIG-")) return entry;
  std::optional<std::string> found;
  for (const GpuInfo& gpu : present) {
    if (!is_uuid(entry) || !gpu.uuid.starts_with(entry)) continue;
    if (found) return std::nullopt;
    found = gpu.uuid;
  }
  return found;
}

// The kind of the first entry decides; an entry of another kind is invalid.
std::optional<std::string> resolve_entry(const std::string& entry, const std::string& first,
                                         const std::vector<GpuInfo>& present) {
  if (!is_uuid(first)) return resolve_index(entry, present);
  return entry.starts_with(first.substr(0, 4)) ? resolve_uuid(entry, present) : std::nullopt;
}

// The other name of a GPU: number for UUID, UUID for number.
std::optional<std::string> other_name(const std::string& id, const std::vector<GpuInfo>& present) {
  for (const GpuInfo& gpu : present) {
    if (std::to_string(gpu.index) == id) return gpu.uuid;
    if (is_uuid(id) && gpu.uuid.starts_with(id)) return std::to_string(gpu.index);
  }
  return std::nullopt;
}

std::optional<std::string> find_visible(const std::string& id, const Names& visible,
                                        const std::vector<GpuInfo>& present) {
  if (contains(visible, id)) return id;
  if (is_uuid(id)) {
    const auto starts = [&](const std::string& name) { return name.starts_with(id); };
    if (std::count_if(visible.begin(), visible.end(), starts) == 1)
      return *std::find_if(visible.begin(), visible.end(), starts);
  }
  const auto other = other_name(id, present);
  return other && contains(visible, *other) ? other : std::nullopt;
}

Names chosen_devices(const Request& request, const Names& visible, const std::vector<GpuInfo>& present) {
  const std::string& list = request.devices_name;
  Names chosen;
  for (const std::string& id : *request.devices) {
    const auto name = find_visible(id, visible, present);
    if (!name && visible.empty())
      throw UsageError(
          "{0} {1}: no GPU is visible here; check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave {0} out to train on "
          "the CPU",
          list, id);
    if (!name) throw UsageError("{} {}: not visible here; visible are {}", list, id, join(visible, ","));
    if (contains(chosen, *name)) throw UsageError("{} {}: this GPU is in the list twice", list, id);
    chosen.push_back(*name);
  }
  return chosen;
}

DeviceChoice one_for_each_device(Names devices) {
  if (devices.empty())
    throw UsageError("-n gpu: no GPU is visible here; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use -n cpu");
  const int count = static_cast<int>(devices.size());
  return {std::move(devices), count, ""};
}

DeviceChoice one_for_each_core(const Request& request, int cores) {
  if (request.devices)
    throw UsageError("-n cpu runs on the CPU and --gpus on GPUs; leave one of them out, or write a number for -n");
  return {{}, std::max(cores, 1), ""};
}

std::string sharing_warning(int processes, const Names& devices) {
  return fmt::format("{} processes share {} GPU{} ({}); NCCL refuses two ranks on one GPU, and memory is shared",
                     processes, devices.size(), devices.size() == 1 ? "" : "s", join(devices, ","));
}

// -n N with a list the user wrote: every process gets the same number of its devices.
void check_blocks(int processes, const Names& devices) {
  if (devices.size() % static_cast<size_t>(processes) == 0) return;
  throw UsageError("--gpus names {} devices, which {} processes cannot share equally; use -n {} or another list",
                   devices.size(), processes, devices.size());
}

DeviceChoice fixed_number(const Request& request, int processes, Names devices) {
  const int count = static_cast<int>(devices.size());
  if (count == 0) return {{}, processes, ""};
  if (processes > count) {
    std::string warning = sharing_warning(processes, devices);
    return {std::move(devices), processes, std::move(warning)};
  }
  if (request.devices)
    check_blocks(processes, devices);
  else
    devices.resize(static_cast<size_t>(processes));
  return {std::move(devices), processes, ""};
}

}  // namespace

bool may_use_gpus(const Request& request, const std::optional<std::string>& cuda_visible_devices) {
  if (request.devices) return true;  // an error about them needs to know what is there
  if (request.processes == "cpu") return false;
  return !hides_all_gpus(cuda_visible_devices);
}

std::vector<std::string> visible_devices(const std::optional<std::string>& cuda_visible_devices,
                                         const std::vector<GpuInfo>& present) {
  if (!cuda_visible_devices || trim(*cuda_visible_devices) == "all") return all_indices(present);
  Names visible;
  if (present.empty()) return visible;
  const Names entries = split(*cuda_visible_devices, ',');
  for (const std::string& entry : entries) {
    const auto name = resolve_entry(std::string(trim(entry)), std::string(trim(entries.front())), present);
    if (!name) break;
    if (contains(visible, *name)) return {};
    visible.push_back(*name);
  }
  return visible;
}

DeviceChoice choose_devices(const Request& request, const std::vector<std::string>& visible, int cores,
                            const std::vector<GpuInfo>& present) {
  Names devices = request.devices ? chosen_devices(request, visible, present) : visible;
  const std::string wanted = request.processes.value_or(devices.empty() ? "1" : "gpu");
  if (wanted == "cpu" || (wanted == "auto" && devices.empty())) return one_for_each_core(request, cores);
  if (wanted == "gpu" || wanted == "auto") return one_for_each_device(std::move(devices));
  const auto number = parse_int(wanted, 1, INT32_MAX);
  if (!number) throw UsageError("-n {}: must be a number, gpu, cpu or auto", wanted);
  return fixed_number(request, static_cast<int>(*number), std::move(devices));
}

}  // namespace trireme::launch
