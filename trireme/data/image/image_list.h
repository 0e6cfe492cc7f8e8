// Which pictures there are and what is on them: from a list file, one `path label` a line as PaddleClas writes it, or
// from a folder with one sub-folder for each class.
//
//   ImageList list = read_image_list("ILSVRC2012/train_list.txt", {.class_num = 1000});
//   list.path(7);                          // "train/n01440764/n01440764_10026.JPEG"
//   list.label(7);                         // 0
//   ImageList folder = read_image_folder("flowers/train");       // label: the place of the sub-folder's name
//
// Made for long lists: all paths lie in one piece of memory. 14 million lines (ImageNet-22k) take about 3 s and 0.6 GB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

/// Immutable once it is made: may be read by several threads.
class ImageList {
 public:
  static constexpr int32_t kUnlabelled = -1;

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  /// As it stands in the list, or relative to the folder. 0 <= index < size().
  std::string_view path(int64_t index) const;
  int32_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }
  const std::vector<int32_t>& labels() const { return labels_; }
  /// One more than the largest label; 0 when there is none.
  int64_t class_num() const;
  /// Names of the sub-folders, or nothing for a list file.
  const std::vector<std::string>& class_names() const { return class_names_; }
  /// The list file or folder; empty for one made by add().
  const std::string& source() const { return source_; }
  /// Memory it holds.
  size_t bytes() const;

  void add(std::string_view path, int32_t label);
  /// Makes room at once for paths of so many bytes together.
  void reserve_paths(size_t path_bytes) { paths_.reserve(path_bytes); }
  /// Renumbers the labels, without gaps, in their order.
  void relabel();
  void set_source(std::string source) { source_ = std::move(source); }
  void set_class_names(std::vector<std::string> names) { class_names_ = std::move(names); }

 private:
  std::string paths_;           // one behind the other
  std::vector<uint64_t> ends_;  // of each path
  std::vector<int32_t> labels_;
  std::vector<std::string> class_names_;
  std::string source_;
};

struct ImageListOptions {
  std::string delimiter = " ";  ///< between path and label. The last one counts, so a path may contain it
  int64_t class_num = 0;        ///< labels must be below; 0: any
  bool labels_required = true;  ///< false: a line may be a path alone, which is then kUnlabelled
  bool relabel = false;         ///< renumber the labels, without gaps, in their order; class_num is for the new ones
};

/// Blank lines, a carriage return at the end of a line and a byte order mark are skipped. Throws UsageError, with file
/// and line, for a label that is missing, not a number or out of range, and for a list without a picture; SystemError
/// when the file cannot be read. Whether the pictures exist is not looked at.
ImageList read_image_list(const std::filesystem::path& file, const ImageListOptions& options = {});

/// Whether the name is that of a picture in a format that is not read: .avif, .bmp, .gif, .heic, .heif, .jxl, .tif, .tiff,
/// .webp, in capitals or not.
bool has_unread_ending(std::string_view path);

/// Classes are the sub-folders in the order of their names, pictures all files below them that end in .jpg, .jpeg or
/// .png in capitals or not, in the order of their paths; also those with an unread ending, which ImageDataset refuses.
/// Throws UsageError for a folder without sub-folders and for a class without a picture, SystemError when a folder
/// cannot be read.
ImageList read_image_folder(const std::filesystem::path& folder);

}  // namespace trireme::data
