// The safetensors file format, without tensors: 8 bytes of header length (little-endian), a JSON header, the data.
//
//   SafetensorsHeader header = read_safetensors_header("resnet50.safetensors");
//   for (const TensorInfo& tensor : header.tensors) fmt::print("{} {}\n", tensor.name, tensor.dtype);
//
// Files come from anywhere: a header that is accepted describes each byte of the data exactly once, and every other is
// a UsageError that names the file, the tensor and both numbers. Needs no libtorch. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/durable.h"
#include "trireme/core/file_sum.h"

namespace trireme::io {

/// Free text beside the tensors, e.g. {"format", "pt"}.
using Metadata = std::map<std::string, std::string>;

struct TensorInfo {
  std::string name;
  std::string dtype = {};           ///< F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 I64 … I8 U64 … U8 BOOL C64
  std::vector<int64_t> shape = {};  ///< empty: a single number
  uint64_t begin = 0;               ///< bytes from the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  ///< in the order of the header
  Metadata metadata;
  uint64_t data_start = 0;  ///< bytes from the start of the file
};

/// A tensor to write: its elements in row-major order.
struct TensorBytes {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string_view bytes;
};

/// Bytes of an element; 0 for an unknown dtype.
uint64_t element_bytes(std::string_view dtype);

/// `start` is the file's beginning, header included; `file` its name for messages.
SafetensorsHeader parse_safetensors_header(std::string_view start, uint64_t file_bytes, const std::string& file);
/// Reads no more than the header. Throws SystemError when the file cannot be read.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

/// The beginning of a file with these tensors; sets their begin and end. The data is aligned for every dtype.
std::string make_safetensors_header(std::vector<TensorInfo>& tensors, const Metadata& metadata);

/// A file that gets its tensors one by one; nothing has happened before commit(). Writes as DurableFile does; `kept` is
/// DurableOptions::kept, unless it is empty. Throws SystemError, and UsageError for a name that is there twice or is not
/// UTF-8, and for a tensor of another size than announced.
class SafetensorsWriter {
 public:
  /// Names, types and shapes of all tensors to come.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors, const Metadata& metadata = {},
                    const std::string& kept = {});
  /// The elements of the next one, by the order of safetensors_order(), row-major.
  void write(std::string_view bytes);
  FileSum commit();

 private:
  std::filesystem::path path_;
  std::vector<TensorInfo> tensors_;
  std::string header_;
  std::vector<size_t> order_;
  size_t next_ = 0;  // place in order_
  DurableFile file_;
};
/// The order in which tensors of these types lie in a file: those with large elements first.
std::vector<size_t> safetensors_order(const std::vector<TensorInfo>& tensors);
/// All at once.
FileSum write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                          const Metadata& metadata = {}, const std::string& kept = {});

/// "F32 [64, 3, 7, 7]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace trireme::io
