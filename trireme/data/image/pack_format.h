// The layout of a packed file (packed.h): which bytes belong to which picture.
//
//   "TRIPACK1"   the pictures, one behind the other   an entry for each   the list's name   footer
//
// Numbers are little-endian. The footer has checksums of itself and of the entries, each entry that of its picture; so
// whatever is cut off, changed or not a packed file is an error that says which, and no number is trusted unchecked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data {

inline constexpr std::string_view kPackMagic = "TRIPACK1";

struct PackEntry {
  uint64_t offset = 0;
  uint32_t bytes = 0;              ///< 0: the picture could not be read when the file was made
  uint32_t sum = 0;                ///< CRC-32C of these bytes
  uint32_t width = 0, height = 0;  ///< of pixels; 0 in a pack of files
};

struct PackFooter {
  uint64_t samples = 0;
  uint64_t entries_at = 0;
  uint32_t list_bytes = 0;   ///< of the list's name
  uint32_t list_sum = 0;     ///< of its paths
  uint32_t short_side = 0;   ///< pixels of pictures shrunk to it; 0: files as they are
  uint32_t entries_sum = 0;  ///< of the entries and the list's name
  uint32_t unused = 0;
  uint32_t footer_sum = 0;  ///< of all above
  char magic[8] = {};
};

/// The footer with its sum, as it is written.
std::string footer_text(PackFooter footer);

/// The checked parts of a packed file that lies in memory and outlives this.
class PackIndex {
 public:
  /// UsageError that begins with `name` and says what is wrong and what to do.
  PackIndex(std::string_view file, const std::string& name);

  const PackFooter& footer() const { return footer_; }
  std::string_view list_name() const { return list_name_; }
  /// 0 <= index < footer().samples.
  PackEntry entry(int64_t index) const;
  /// Of the picture; its sum is not looked at.
  std::string_view bytes(const PackEntry& entry) const { return file_.substr(entry.offset, entry.bytes); }

 private:
  void check_footer(const std::string& name);
  void check_entries(const std::string& name) const;

  std::string_view file_;
  PackFooter footer_;
  std::string_view entries_, list_name_;
};

}  // namespace trireme::data
