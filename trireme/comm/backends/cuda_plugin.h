// What libtrireme_cuda.so gives the library: a table of functions behind one C symbol.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/backends/gpu_recording.h"

namespace trireme::comm {

struct CudaPlugin {
  int version;  ///< kCudaPluginVersion of the library it was built with
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                 int device, std::chrono::milliseconds timeout);
  std::string (*identity)(int device);
  std::string (*describe)(int device);
  std::unique_ptr<GpuRecording> (*make_recording)(int device);
};

inline constexpr int kCudaPluginVersion = 2;
inline constexpr const char* kCudaPluginSymbol = "trireme_cuda_plugin";

}  // namespace trireme::comm
