// The IDX format of the MNIST family: two zero bytes, the type, the number of dimensions, each dimension as a
// big-endian 32-bit number, then the elements. Only unsigned bytes (type 8) are read: images have three dimensions,
// labels one.
//
//   IdxArray images = read_idx("train-images-idx3-ubyte.gz");
//   images.shape          // 60000 28 28
//   images.elements()     // 47040000 bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

struct IdxArray {
  std::vector<int64_t> shape = {};
  std::string content = {};  ///< the file's, header included
  size_t header_bytes = 0;

  std::span<const uint8_t> elements() const {
    return {reinterpret_cast<const uint8_t*>(content.data()) + header_bytes, content.size() - header_bytes};
  }
};

/// Reads the content of an IDX file. `name` is for messages. Throws UsageError, naming both numbers, when it is
/// something else or when header and length disagree. Allocates nothing by what the header says.
IdxArray parse_idx(std::string content, const std::string& name);

/// The content of a plain or gzip file; its first bytes decide which, not its name. Throws
/// SystemError when it cannot be read, UsageError when the compressed data is damaged or the content is larger than
/// `limit` bytes: a small file can unpack to any size.
std::string read_plain_or_gzip(const std::filesystem::path& path, size_t limit);

/// Reads a plain or gzip file of at most 4 GiB.
IdxArray read_idx(const std::filesystem::path& path);

/// Images and their labels, checked against each other.
struct LabelledImages {
  IdxArray images;  ///< count x height x width
  IdxArray labels;  ///< count
};

/// Throws UsageError when a file is damaged, has the wrong number of dimensions or no elements, when the counts differ,
/// or when a label is not below `classes`.
LabelledImages read_labelled_images(const std::filesystem::path& images, const std::filesystem::path& labels,
                                    int classes);

}  // namespace trireme::data
