#include "trireme/io/safetensors.h"

#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/text.h"
#include "trireme/io/format/safetensors_format.h"

namespace trireme::io {
namespace {

struct Dtype {
  const char* name;
  torch::ScalarType type;
};
constexpr Dtype kDtypes[] = {{"F64", torch::kDouble},
                             {"F32", torch::kFloat},
                             {"F16", torch::kHalf},
                             {"BF16", torch::kBFloat16},
                             {"F8_E4M3", torch::kFloat8_e4m3fn},
                             {"F8_E5M2", torch::kFloat8_e5m2},
                             {"F8_E8M0", torch::ScalarType::Float8_e8m0fnu},
                             {"C64", torch::kComplexFloat},
                             {"I64", torch::kLong},
                             {"I32", torch::kInt},
                             {"I16", torch::kShort},
                             {"I8", torch::kChar},
                             {"U64", torch::kUInt64},
                             {"U32", torch::kUInt32},
                             {"U16", torch::kUInt16},
                             {"U8", torch::kByte},
                             {"BOOL", torch::kBool}};

const char* dtype_name(const std::string& name, torch::ScalarType type) {
  for (const Dtype& known : kDtypes)
    if (known.type == type) return known.name;
  throw UsageError("tensor '{}' has dtype {}, which a safetensors file cannot hold; convert it first", printable(name),
                   c10::toString(type));
}

torch::ScalarType scalar_type(const std::string& dtype) {
  for (const Dtype& known : kDtypes)
    if (dtype == known.name) return known.type;
  throw UsageError("safetensors: dtype {} is unknown to this libtorch", dtype);
}

torch::Tensor plain(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.defined()) throw UsageError("tensor '{}' is undefined and cannot be saved", printable(name));
  if (tensor.layout() != torch::kStrided)
    throw UsageError("tensor '{}' is sparse, which a safetensors file cannot hold; save tensor.to_dense()",
                     printable(name));
  return tensor.detach().to(torch::kCPU).contiguous().resolve_conj().resolve_neg();
}

std::string_view bytes_of(const torch::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void read_exactly(int fd, char* to, uint64_t bytes, uint64_t offset, const std::filesystem::path& path) {
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, to, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError(errno, "cannot read {} at byte {}", path.string(), offset);
    if (n == 0)
      throw UsageError("{}: it ends at byte {}, {} short of its header; it became shorter while it was read",
                       path.string(), offset, bytes);
    to += n;
    bytes -= static_cast<uint64_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

torch::Tensor read_tensor(int fd, const TensorInfo& info, uint64_t data_start, const std::filesystem::path& path) {
  const torch::ScalarType type = scalar_type(info.dtype);
  // A bool that is neither 0 nor 1 is undefined behaviour: bytes from outside are taken as numbers first.
  torch::Tensor tensor = torch::empty(info.shape, type == torch::kBool ? torch::kByte : type);
  read_exactly(fd, static_cast<char*>(tensor.data_ptr()), info.end - info.begin, data_start + info.begin, path);
  return type == torch::kBool ? tensor.ne(0) : tensor;
}

}  // namespace

FileSum save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                         const std::map<std::string, std::string>& metadata, const std::string& kept) {
  std::vector<torch::Tensor> owners;  // of the bytes
  std::vector<TensorBytes> entries;
  // All of them first: to read one of a sharded model may free another.
  for (const auto& item : tensors) owners.push_back(plain(item.key(), item.value()));
  for (size_t i = 0; i < owners.size(); ++i)
    entries.push_back({.name = tensors[i].key(),
                       .dtype = dtype_name(tensors[i].key(), owners[i].scalar_type()),
                       .shape = owners[i].sizes().vec(),
                       .bytes = bytes_of(owners[i])});
  return write_safetensors(path, entries, metadata, kept);
}

namespace {

std::vector<TensorInfo> infos_of(const std::vector<TensorLayout>& tensors) {
  std::vector<TensorInfo> infos;
  for (const TensorLayout& one : tensors)
    infos.push_back({.name = one.name, .dtype = dtype_name(one.name, one.type), .shape = one.sizes});
  return infos;
}

}  // namespace

uint64_t TensorLayout::bytes() const {
  return static_cast<uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
}

std::vector<size_t> writing_order(const std::vector<TensorLayout>& tensors) {
  return safetensors_order(infos_of(tensors));
}

struct TensorFile::Parts {
  std::vector<TensorLayout> tensors;
  std::vector<size_t> order;
  SafetensorsWriter file;
  size_t next = 0;
};

TensorFile::TensorFile(const std::filesystem::path& path, const std::vector<TensorLayout>& tensors,
                       const std::map<std::string, std::string>& metadata, const std::string& kept)
    : parts_(new Parts{tensors, writing_order(tensors), SafetensorsWriter(path, infos_of(tensors), metadata, kept)}) {}
TensorFile::~TensorFile() = default;
TensorFile::TensorFile(TensorFile&&) noexcept = default;

void TensorFile::write(const torch::Tensor& tensor) {
  const TensorLayout& announced = parts_->tensors[parts_->order.at(parts_->next++)];
  const torch::Tensor values = plain(announced.name, tensor);
  if (values.scalar_type() != announced.type || values.sizes() != announced.sizes)
    throw UsageError("tensor '{}' was announced as {} {} and is {} {}", printable(announced.name),
                     c10::toString(announced.type), shape_text(announced.sizes), c10::toString(values.scalar_type()),
                     shape_text(values.sizes().vec()));
  parts_->file.write(bytes_of(values));
}

FileSum TensorFile::commit() {
  return parts_->file.commit();
}

TensorMap load_safetensors(const std::filesystem::path& path) {
  const torch::NoGradGuard no_grad;
  const SafetensorsHeader header = read_safetensors_header(path);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw SystemError(errno, "cannot open {}", path.string());
  TensorMap tensors;
  tensors.reserve(header.tensors.size());
  for (const TensorInfo& info : header.tensors)
    tensors.insert(info.name, read_tensor(file.get(), info, header.data_start, path));
  return tensors;
}

}  // namespace trireme::io
