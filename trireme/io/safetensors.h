// Tensors in safetensors files, which Python's safetensors package and every tool around it read and write.
//
//   save_safetensors("net.safetensors", state_dict(*net));
//   load_into(*net, load_safetensors("net.safetensors"));
//
// Any device and layout may be saved; what is loaded lies on the CPU, contiguous, and owns its memory. Free functions
// without state: any thread.
#pragma once

#include <c10/util/Exception.h>  // ordered_dict.h uses it and does not include it
#include <torch/ordered_dict.h>
#include <torch/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/core/file_sum.h"

namespace trireme::io {

/// Tensors by name, in the order they were inserted.
using TensorMap = torch::OrderedDict<std::string, torch::Tensor>;

/// A reader sees the old file or the new one, also after a loss of power. Throws SystemError that names the bytes
/// needed and those free when the disk is full; UsageError for a tensor that the format cannot hold (sparse, quantized,
/// complex128). `metadata` is free text beside the tensors, e.g. {"format", "pt"}. `kept` says in the SystemError what
/// the user still has; empty: what was there before.
FileSum save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                         const std::map<std::string, std::string>& metadata = {}, const std::string& kept = {});

/// What is known of a tensor before it is there.
struct TensorLayout {
  std::string name;
  torch::ScalarType type;
  std::vector<int64_t> sizes;

  uint64_t bytes() const;
};
/// The order in which a file has tensors of these types.
std::vector<size_t> writing_order(const std::vector<TensorLayout>& tensors);

/// The same file as save_safetensors() writes, tensor by tensor: only one has to be there at a time.
class TensorFile {
 public:
  TensorFile(const std::filesystem::path& path, const std::vector<TensorLayout>& tensors,
             const std::map<std::string, std::string>& metadata = {}, const std::string& kept = {});
  ~TensorFile();
  TensorFile(TensorFile&&) noexcept;

  /// The next one by writing_order(), on any device. UsageError when it is not as announced.
  void write(const torch::Tensor& tensor);
  /// Without it nothing has happened.
  FileSum commit();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Throws UsageError that names the file, the tensor and both numbers when it is not a valid file; SystemError when it
/// cannot be read.
TensorMap load_safetensors(const std::filesystem::path& path);

}  // namespace trireme::io
