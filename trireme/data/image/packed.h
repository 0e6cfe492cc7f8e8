// All pictures of a list in one file, which is mapped into memory: no folder of a million files is looked through, the
// ranks of a host share what they have read, and decoding can be done once instead of in every epoch.
//
//   data::pack_images("train.pack", list, {.root = "ILSVRC2012"});                       // the files as they are
//   data::pack_images("small.pack", list, {.root = "ILSVRC2012", .short_side = 256});    // decoded and shrunk
//   data::ImageDataset train(list, transforms, {.packed = "train.pack"});
//
// `trireme pack` does the first two. A pack of files gives the same samples as the files, bit for bit. One with a short
// side gives those of pictures that were shrunk before (never enlarged): no JPEG is decoded any more, and the file has
// about four times the bytes. A picture that could not be read when the file was made is a bad one of the dataset.
//
// The file knows the paths of its list and their order: another list is an error. Labels are those of the list at hand.
// Pictures that change later are not noticed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/data/image/image.h"
#include "trireme/data/image/image_list.h"

namespace trireme::data {

struct PackOptions {
  std::filesystem::path root = {};  ///< what the list's paths are relative to
  int short_side = 0;               ///< pixels to which the shorter side is shrunk; 0: files as they are
  int threads = 1;                  ///< that read and decode
};

/// Appears whole or not at all, in place of an older one. Pictures that cannot be read are logged. Throws UsageError for
/// an empty list, options out of range, and when no picture can be read; SystemError when the file cannot be written.
void pack_images(const std::filesystem::path& file, const ImageList& list, const PackOptions& options = {});

/// The bytes of a JPEG or PNG file. Throws image::ImageError with the reason, without the path.
std::string read_picture(const std::filesystem::path& path);

/// Immutable: may be read by several threads. A picture's checksum is compared when it is read first.
class PackedImages {
 public:
  /// Throws UsageError when the file is missing, not a packed file, damaged or cut off, or made of another list.
  PackedImages(const std::filesystem::path& file, const ImageList& list);
  ~PackedImages();
  PackedImages(const PackedImages&) = delete;
  PackedImages& operator=(const PackedImages&) = delete;

  /// Whether the pictures are pixels: read() instead of bytes().
  bool holds_pixels() const;
  /// Of the file that was packed. image::ImageError: it could not be read then. UsageError: it is damaged here.
  std::string_view bytes(int64_t index) const;
  void read(int64_t index, image::Image& image) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::data
