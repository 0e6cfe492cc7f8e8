#include "trireme/core/gpu_driver.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "trireme/core/text.h"

namespace trireme {
namespace {

constexpr std::array kDriverFiles = {"/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1",
                                     "/dev/nvmap"};  // a server, WSL, a Jetson

}  // namespace

bool has_gpu_driver() {
  return std::any_of(kDriverFiles.begin(), kDriverFiles.end(),
                     [](const char* file) { return ::access(file, F_OK) == 0; });
}

bool hides_all_gpus(const std::optional<std::string>& cuda_visible_devices) {
  if (!cuda_visible_devices) return false;
  const std::string_view list = trim(*cuda_visible_devices);
  return list.empty() || list.starts_with("-");
}

bool is_gpu_wanted(const GpuSigns& signs) {
  if (signs.selected_gpus && !signs.selected_gpus->empty()) return true;
  return !hides_all_gpus(signs.cuda_visible_devices) && signs.paddle_backend != "gloo" && signs.has_driver;
}

}  // namespace trireme
