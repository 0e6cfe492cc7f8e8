// libtorch's NCCL for CUDA tensors, from libtrireme_cuda.so, which is loaded before main() when there is a GPU: a
// program that uses none needs no CUDA library.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "trireme/core/rank_info.h"
#include "trireme/store/store.h"

namespace trireme::comm {

struct NcclOptions {
  std::shared_ptr<Store> store;
  std::string prefix;
  RankInfo me{};
  int device = 0;
  std::chrono::milliseconds timeout{};
};

/// UsageError when why_no_cuda() says something.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclOptions& options);

/// Whether this process is to use a GPU: the rule of core/gpu_driver.h for its environment.
bool is_gpu_wanted();

/// Nothing when libtrireme_cuda.so, and with it libtorch's CUDA part, is loaded and finds a GPU; else why not.
std::optional<std::string> why_no_cuda();

/// A name for the GPU that is the same in every process, e.g. its UUID.
std::string gpu_identity(int device);
/// "NVIDIA H200, compute capability 9.0, driver 13.0, runtime 13.0, cuDNN 9.19.0, NCCL 2.28.9"
std::string describe_gpu(int device);

}  // namespace trireme::comm
