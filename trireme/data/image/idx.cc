#include "trireme/data/image/idx.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr uint32_t kUnsignedBytes = 0x08;
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxContent = size_t{4} << 30;

constexpr size_t kPiece = 1 << 20;

struct Close {
  void operator()(gzFile_s* file) const { ::gzclose_r(file); }
};
using GzipFile = std::unique_ptr<gzFile_s, Close>;

GzipFile open(const std::filesystem::path& path) {
  errno = 0;
  GzipFile file(::gzopen(path.c_str(), "rbe"));
  if (!file) throw SystemError(errno != 0 ? errno : ENOMEM, "cannot open {}", path.string());
  ::gzbuffer(file.get(), 128 << 10);
  return file;
}

[[noreturn]] void refuse(const GzipFile& file, const std::filesystem::path& path, size_t read) {
  const int system_error = errno;
  int code = 0;
  const char* reason = ::gzerror(file.get(), &code);
  if (code == Z_ERRNO) throw SystemError(system_error, "cannot read {}", path.string());
  throw UsageError("{}: the compressed data is damaged or cut off after {} unpacked bytes ({}); fetch the file again",
                   path.string(), read, reason);
}

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

/// The number of dimensions.
size_t check_magic(const std::string& content, const std::string& name) {
  if (content.size() < kMagicBytes)
    throw UsageError("{}: it has {} bytes, but an IDX file begins with {}; fetch it again", name, content.size(),
                     kMagicBytes);
  const uint32_t magic = big_endian(content, 0);
  const size_t dimensions = magic & 0xff;
  if (magic >> 8 != kUnsignedBytes || dimensions < 1 || dimensions > kMaxDimensions)
    throw UsageError(
        "{}: not an IDX file of unsigned bytes: it begins with 0x{:08x}, not with 0x00000803 (images) or 0x00000801 "
        "(labels)",
        name, magic);
  return dimensions;
}

void check_length(const IdxArray& array, const std::string& name) {
  uint64_t promised = 1;
  bool too_large = false;
  for (const int64_t size : array.shape)
    too_large |= __builtin_mul_overflow(promised, static_cast<uint64_t>(size), &promised);
  const size_t found = array.elements().size();
  if (!too_large && promised == found) return;
  throw UsageError("{}: its header says {} = {} bytes, but {} follow; the file is {}, fetch it again", name,
                   shape_text(array.shape), too_large ? "too many" : std::to_string(promised), found,
                   too_large || promised > found ? "cut off" : "too long");
}

void check_dimensions(const IdxArray& array, size_t expected, const char* what, const std::filesystem::path& path) {
  if (array.shape.size() != expected)
    throw UsageError("{}: {} have {} dimensions, but this file has {} ({}); are the files interchanged?", path.string(),
                     what, expected, array.shape.size(), shape_text(array.shape));
  if (array.elements().empty())
    throw UsageError("{}: it holds no {} ({})", path.string(), what, shape_text(array.shape));
}

void check_labels(const IdxArray& labels, int classes, const std::filesystem::path& path) {
  const auto values = labels.elements();
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] >= classes)
      throw UsageError("{}: label #{} is {}, but labels must be from 0 to {}", path.string(), i, values[i],
                       classes - 1);
}

}  // namespace

std::string read_plain_or_gzip(const std::filesystem::path& path, size_t limit) {
  const GzipFile file = open(path);
  std::string content;
  while (true) {
    const size_t before = content.size();
    content.resize(before + kPiece);
    const int got = ::gzread(file.get(), content.data() + before, kPiece);
    content.resize(before + static_cast<size_t>(std::max(got, 0)));
    if (got < 0) refuse(file, path, before);
    if (content.size() > limit)
      throw UsageError("{}: its content is larger than {} bytes, the most that is read", path.string(), limit);
    if (static_cast<size_t>(got) == kPiece) continue;
    int code = Z_OK;
    ::gzerror(file.get(), &code);
    if (code != Z_OK) refuse(file, path, content.size());  // an end inside of the compressed data
    return content;
  }
}

IdxArray parse_idx(std::string content, const std::string& name) {
  const size_t dimensions = check_magic(content, name);
  IdxArray array{.header_bytes = kMagicBytes + 4 * dimensions};
  if (content.size() < array.header_bytes)
    throw UsageError("{}: it ends after {} bytes, inside of its header of {} for {} dimensions; fetch it again", name,
                     content.size(), array.header_bytes, dimensions);
  for (size_t i = 0; i < dimensions; ++i) array.shape.push_back(big_endian(content, kMagicBytes + 4 * i));
  array.content = std::move(content);
  check_length(array, name);
  return array;
}

IdxArray read_idx(const std::filesystem::path& path) {
  return parse_idx(read_plain_or_gzip(path, kMaxContent), path.string());
}

LabelledImages read_labelled_images(const std::filesystem::path& images, const std::filesystem::path& labels,
                                    int classes) {
  LabelledImages both{read_idx(images), read_idx(labels)};
  check_dimensions(both.images, 3, "images", images);
  check_dimensions(both.labels, 1, "labels", labels);
  if (both.images.shape[0] != both.labels.shape[0])
    throw UsageError("{} has {} images, but {} has {} labels; they are not of the same set", images.string(),
                     both.images.shape[0], labels.string(), both.labels.shape[0]);
  check_labels(both.labels, classes, labels);
  return both;
}

}  // namespace trireme::data
