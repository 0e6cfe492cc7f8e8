// What can be known of GPUs without loading anything of CUDA, which takes a second.
#pragma once

#include <optional>
#include <string>

namespace trireme {

/// Whether a file is there that comes with NVIDIA's driver.
bool has_gpu_driver();

/// Whether this value of CUDA_VISIBLE_DEVICES leaves no GPU visible: "-1" or blank.
bool hides_all_gpus(const std::optional<std::string>& cuda_visible_devices);

/// What decides whether a program is to use a GPU.
struct GpuSigns {
  std::optional<std::string> selected_gpus = {};         ///< FLAGS_selected_gpus, which the launcher sets
  std::optional<std::string> cuda_visible_devices = {};  ///< CUDA_VISIBLE_DEVICES
  std::optional<std::string> paddle_backend = {};  ///< PADDLE_DISTRI_BACKEND: "gloo" where the launcher chose the CPU
  bool has_driver = false;
};
/// Whether the launcher has chosen a GPU, or there is a driver and nothing says to use the CPU. Pure.
bool is_gpu_wanted(const GpuSigns& signs);

}  // namespace trireme
