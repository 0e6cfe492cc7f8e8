// What can be known of GPUs without loading anything of CUDA, which takes a second.
#pragma once

#include <optional>
#include <string>

namespace trireme {

/// Whether a file is there that comes with NVIDIA's driver.
bool has_gpu_driver();

/// Whether this value of CUDA_VISIBLE_DEVICES leaves no GPU visible: "-1" or blank.
bool hides_all_gpus(const std::optional<std::string>& cuda_visible_devices);

}  // namespace trireme
