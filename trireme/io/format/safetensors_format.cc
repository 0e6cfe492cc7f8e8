#include "trireme/io/format/safetensors_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::io {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the elements of a file are little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation's
constexpr const char* kMetadata = "__metadata__";

struct Dtype {
  const char* name;
  uint64_t bytes;
};
constexpr Dtype kDtypes[] = {{"F64", 8}, {"I64", 8},     {"U64", 8},     {"C64", 8},     {"F32", 4}, {"I32", 4},
                             {"U32", 4}, {"F16", 2},     {"BF16", 2},    {"I16", 2},     {"U16", 2}, {"I8", 1},
                             {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"BOOL", 1}};

std::string dtype_names() {
  std::vector<std::string> names;
  for (const Dtype& dtype : kDtypes) names.emplace_back(dtype.name);
  return join(names, ", ");
}

// One JSON header while it is read. The parser reports each key and value; no tree of the whole is ever made, and a
// name that comes twice is seen before the second would replace the first.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, uint64_t data_bytes, const std::string& file)
      : text_(text), data_bytes_(data_bytes), file_(file) {}

  SafetensorsHeader read() {
    if (!text_.starts_with('{')) throw UsageError("{}: its header is not a JSON object", file_);
    try {
      [[maybe_unused]] const json emptied = json::parse(
          text_, [this](int depth, json::parse_event_t event, json& value) { return on_event(depth, event, value); });
    } catch (const json::parse_error& error) {
      throw UsageError("{}: its header of {} bytes is not JSON at byte {}; is it a safetensors file?", file_,
                       text_.size(), error.byte);
    } catch (const json::out_of_range&) {
      throw UsageError("{}: its header has a number that is too large in '{}'", file_, printable(name_));
    }
    check_coverage();
    return std::move(header_);
  }

 private:
  bool on_event(int depth, json::parse_event_t event, json& value) {
    constexpr int kMaxDepth = 3;  // { tensor: { shape: [ number
    if (depth > kMaxDepth) throw UsageError("{}: its header is nested deeper than {} levels", file_, kMaxDepth);
    if (event == json::parse_event_t::key) on_key(depth, value.get_ref<const std::string&>());
    const bool ends = event == json::parse_event_t::object_end || event == json::parse_event_t::array_end ||
                      event == json::parse_event_t::value;
    if (depth != 1 || !ends) return true;
    on_entry(value);
    return false;  // it is taken, the parser need not keep it
  }

  void on_key(int depth, const std::string& key) {
    if (depth == 1) {
      fields_.clear();
      name_ = key;
    }
    if (!(depth == 1 ? names_ : fields_).insert(key).second)
      throw UsageError("{}: its header has the name '{}' twice{}", file_, printable(key),
                       depth == 1 ? "" : fmt::format(" in '{}'", printable(name_)));
  }

  void on_entry(const json& value) {
    if (!value.is_object()) throw UsageError("{}: '{}' in its header is not an object", file_, printable(name_));
    if (name_ == kMetadata)
      read_metadata(value);
    else
      header_.tensors.push_back(read_tensor(value));
  }

  void read_metadata(const json& value) {
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) throw UsageError("{}: metadata '{}' is not text", file_, printable(key));
      header_.metadata[key] = text.get<std::string>();
    }
  }

  TensorInfo read_tensor(const json& value) const {
    TensorInfo tensor{.name = name_};
    tensor.dtype = read_dtype(value);
    for (const uint64_t size : read_numbers(value, "shape")) tensor.shape.push_back(static_cast<int64_t>(size));
    const std::vector<uint64_t> offsets = read_numbers(value, "data_offsets");
    if (offsets.size() != 2) fail(fmt::format("has {} data_offsets instead of 2", offsets.size()));
    tensor.begin = offsets[0];
    tensor.end = offsets[1];
    check_range(tensor);
    return tensor;
  }

  std::string read_dtype(const json& value) const {
    const auto found = value.find("dtype");
    if (found == value.end() || !found->is_string()) fail("has no dtype");
    const auto& name = found->get_ref<const std::string&>();
    if (element_bytes(name) == 0) fail(fmt::format("has dtype '{}'; known are {}", printable(name), dtype_names()));
    return name;
  }

  std::vector<uint64_t> read_numbers(const json& value, const char* field) const {
    const auto found = value.find(field);
    if (found == value.end() || !found->is_array()) fail(fmt::format("has no list {}", field));
    std::vector<uint64_t> numbers;
    for (const json& number : *found) {
      const bool valid =
          number.is_number_unsigned() && number.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
      if (!valid) fail(fmt::format("has {} in its {}", number.dump(-1, ' ', true), field));
      numbers.push_back(number.get<uint64_t>());
    }
    return numbers;
  }

  void check_range(const TensorInfo& tensor) const {
    if (tensor.begin > tensor.end || tensor.end > data_bytes_)
      fail(fmt::format("lies from byte {} to {} of {} bytes of data; the file is cut off or damaged", tensor.begin,
                       tensor.end, data_bytes_));
    uint64_t needed = element_bytes(tensor.dtype);
    bool empty = false;
    bool too_large = false;
    for (const int64_t size : tensor.shape) {
      empty |= size == 0;
      too_large |= __builtin_mul_overflow(needed, size == 0 ? 1 : static_cast<uint64_t>(size), &needed);
    }
    too_large |= needed > uint64_t{std::numeric_limits<int64_t>::max()};
    if (too_large) fail(fmt::format("of {} {} has more bytes than can be", tensor.dtype, shape_text(tensor.shape)));
    if ((empty ? 0 : needed) != tensor.end - tensor.begin)
      fail(fmt::format("of {} {} needs {} bytes, but has {}", tensor.dtype, shape_text(tensor.shape),
                       empty ? 0 : needed, tensor.end - tensor.begin));
  }

  // Each byte belongs to exactly one tensor.
  void check_coverage() const {
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    uint64_t end = 0;
    for (const TensorInfo* tensor : order) {
      if (tensor->begin != end)
        throw UsageError(
            "{}: tensor '{}' begins at byte {} of the data, but what is before it ends at {}; the file "
            "is damaged",
            file_, printable(tensor->name), tensor->begin, end);
      end = tensor->end;
    }
    if (end != data_bytes_)
      throw UsageError("{}: its tensors have {} bytes, but {} follow the header; the file is damaged", file_, end,
                       data_bytes_);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError("{}: tensor '{}' {}", file_, printable(name_), what);
  }

  std::string_view text_;
  uint64_t data_bytes_;
  const std::string& file_;
  SafetensorsHeader header_;
  std::string name_;  // of the tensor that is read
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
};

uint64_t header_length(std::string_view start, uint64_t file_bytes, const std::string& file) {
  if (start.size() < kLengthBytes)
    throw UsageError("{}: it has {} bytes, but a safetensors file begins with {} bytes of header length", file,
                     file_bytes, kLengthBytes);
  uint64_t length = 0;
  std::memcpy(&length, start.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    throw UsageError(
        "{}: its header would have {} bytes, above the limit of {}; is it a safetensors file? (.pth and "
        ".pdparams files must be converted: see tools/)",
        file, length, kMaxHeaderBytes);
  if (length > file_bytes - kLengthBytes)
    throw UsageError("{}: its header has {} bytes, but the file only {}; it is cut off, fetch it again", file, length,
                     file_bytes);
  return length;
}

std::string dump(const json& value) {
  try {
    return value.dump();
  } catch (const json::type_error&) {
    throw UsageError("safetensors: a tensor's name or a metadata text is not UTF-8: {}",
                     value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 200));
  }
}

std::string need_head(const std::filesystem::path& path, uint64_t bytes) {
  auto head = read_head(path, bytes);
  if (!head) throw SystemError(errno, "cannot read {}", path.string());
  return std::move(*head);
}

std::vector<TensorInfo> with_distinct_names(std::vector<TensorInfo> tensors, const std::filesystem::path& path) {
  std::unordered_set<std::string> names{kMetadata};
  for (const TensorInfo& tensor : tensors)
    if (!names.insert(tensor.name).second)
      throw UsageError("{}: two tensors to write are named '{}'", path.string(), printable(tensor.name));
  return tensors;
}

uint64_t total_bytes(const std::vector<TensorInfo>& tensors) {
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) bytes += tensor.end - tensor.begin;
  return bytes;
}

}  // namespace

uint64_t element_bytes(std::string_view dtype) {
  for (const Dtype& known : kDtypes)
    if (dtype == known.name) return known.bytes;
  return 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

SafetensorsHeader parse_safetensors_header(std::string_view start, uint64_t file_bytes, const std::string& file) {
  const uint64_t length = header_length(start, file_bytes, file);
  const uint64_t data_start = kLengthBytes + length;
  if (start.size() < data_start)
    throw UsageError("{}: it ends after {} bytes, inside of its header of {}", file, start.size(), length);
  SafetensorsHeader header = HeaderReader(start.substr(kLengthBytes, length), file_bytes - data_start, file).read();
  header.data_start = data_start;
  return header;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  std::error_code failed;
  const uint64_t file_bytes = std::filesystem::file_size(path, failed);
  if (failed) throw SystemError(failed.value(), "cannot open {}", path.string());
  const std::string length = need_head(path, kLengthBytes);
  const std::string start = need_head(path, kLengthBytes + header_length(length, file_bytes, path.string()));
  return parse_safetensors_header(start, file_bytes, path.string());
}

std::string make_safetensors_header(std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  uint64_t end = 0;
  for (const size_t i : safetensors_order(tensors)) {
    uint64_t bytes = element_bytes(tensors[i].dtype);
    for (const int64_t size : tensors[i].shape) bytes *= static_cast<uint64_t>(size);
    tensors[i].begin = end;
    tensors[i].end = end += bytes;
  }
  std::string text = metadata.empty() ? "{" : "{" + dump(kMetadata) + ":" + dump(metadata);
  for (const TensorInfo& tensor : tensors) {
    const json entry = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
    text += (text.size() > 1 ? "," : "") + dump(tensor.name) + ":" + dump(entry);
  }
  text += "}";
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

// Each tensor then begins at a multiple of its element's size.
std::vector<size_t> safetensors_order(const std::vector<TensorInfo>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return element_bytes(tensors[a].dtype) > element_bytes(tensors[b].dtype);
  });
  return order;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                                     const Metadata& metadata, const std::string& kept)
    : path_(path),
      tensors_(with_distinct_names(std::move(tensors), path)),
      header_(make_safetensors_header(tensors_, metadata)),
      order_(safetensors_order(tensors_)),
      file_(path, {.bytes_needed = header_.size() + total_bytes(tensors_),
                   .kept = kept.empty() ? DurableOptions{}.kept : kept}) {
  file_.write(header_);
}

void SafetensorsWriter::write(std::string_view bytes) {
  if (next_ == order_.size())
    throw UsageError("{}: {} tensors were announced, and here is one more", path_.string(), order_.size());
  const TensorInfo& tensor = tensors_[order_[next_++]];
  if (bytes.size() != tensor.end - tensor.begin)
    throw UsageError("{}: tensor '{}' was announced with {} bytes and has {}", path_.string(), printable(tensor.name),
                     tensor.end - tensor.begin, bytes.size());
  file_.write(bytes);
}

FileSum SafetensorsWriter::commit() {
  if (next_ != order_.size())
    throw UsageError("{}: {} tensors were announced, but only {} written", path_.string(), order_.size(), next_);
  return file_.commit();
}

FileSum write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                          const Metadata& metadata, const std::string& kept) {
  std::vector<TensorInfo> infos;
  for (const TensorBytes& tensor : tensors)
    infos.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  SafetensorsWriter file(path, infos, metadata, kept);
  for (const size_t i : safetensors_order(infos)) file.write(tensors[i].bytes);
  return file.commit();
}

}  // namespace trireme::io
