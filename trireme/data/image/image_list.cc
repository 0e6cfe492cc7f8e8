#include "trireme/data/image/image_list.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <system_error>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> kUnreadEndings = {".avif", ".bmp", ".gif",  ".heic", ".heif",
                                                            ".jxl",  ".tif", ".tiff", ".webp"};
constexpr size_t kLongestEnding = 5;
constexpr size_t kMaxLine = 1 << 16;  // PATH_MAX is 4096: a longer line means that this is not a list

/// Reads a file line by line: a list of gigabytes is never in memory twice.
class LineReader {
 public:
  explicit LineReader(const fs::path& file) : name_(file.string()), stream_(file, std::ios::binary) {
    if (!stream_) throw SystemError(errno, "cannot open the image list {}", name_);
  }

  /// Without its end. It lives until the next call.
  std::optional<std::string_view> next() {
    stream_.getline(line_.data(), static_cast<std::streamsize>(line_.size()));
    const auto read = static_cast<size_t>(stream_.gcount());
    if (stream_.bad()) throw SystemError(errno, "cannot read the image list {}", name_);
    if (stream_.eof()) return read > 0 ? std::optional<std::string_view>({line_.data(), read}) : std::nullopt;
    if (stream_.fail()) throw UsageError("{}: a line is longer than {} bytes; is it a text file?", name_, kMaxLine);
    return std::string_view(line_.data(), read - 1);
  }

 private:
  std::string name_;
  std::ifstream stream_;
  std::string line_ = std::string(kMaxLine + 1, '\0');  // and the zero that getline() writes
};

struct Place {
  const fs::path& file;
  int64_t line = 0;
};

std::string to_string(const Place& place) {
  return fmt::format("{}:{}", place.file.string(), place.line);
}

std::optional<int32_t> parse_label(std::string_view text) {
  int32_t label = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  if (error != std::errc() || end != text.data() + text.size() || label < 0) return std::nullopt;
  return label;
}

void check_range(int64_t label, int64_t class_num, const Place& place) {
  if (class_num > 0 && label >= class_num)
    throw UsageError("{}: the label is {}, but with class_num {} labels are from 0 to {}", to_string(place), label,
                     class_num, class_num - 1);
}

void add_line(ImageList& list, std::string_view line, const ImageListOptions& options, const Place& place) {
  const size_t gap = line.rfind(options.delimiter);
  const bool split = gap != std::string_view::npos && gap > 0;
  const std::string_view text = split ? trim(line.substr(gap + options.delimiter.size())) : std::string_view();
  const auto label = parse_label(text);
  if (!label && !options.labels_required) return list.add(line, ImageList::kUnlabelled);
  if (!split)
    throw UsageError("{}: '{}' has no label; a line is a path, '{}' and a number", to_string(place), printable(line),
                     printable(options.delimiter));
  if (!label)
    throw UsageError("{}: '{}' is not a label; it must be a whole number from 0 to {}", to_string(place),
                     printable(text), std::numeric_limits<int32_t>::max());
  if (!options.relabel) check_range(*label, options.class_num, place);
  list.add(trim(line.substr(0, gap)), *label);
}

void check_delimiter(const ImageListOptions& options) {
  if (options.delimiter.empty() || options.delimiter.find_first_of("\r\n") != std::string::npos)
    throw UsageError("image list: the delimiter is '{}'; it must be one or more characters of a line",
                     printable(options.delimiter));
}

bool is_picture(const fs::path& file) {
  const std::string ending = to_lower(file.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png" || has_unread_ending(ending);
}

/// The names of the sub-folders, sorted. A link to a folder is one.
std::vector<std::string> class_folders(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Relative to `folder`, sorted. Links below a class are not followed: they might lead back.
std::vector<std::string> pictures(const fs::path& folder, const std::string& name) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder / name))
    if (is_picture(entry.path()) && entry.is_regular_file())
      paths.push_back((name / entry.path().lexically_relative(folder / name)).string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

ImageList read_classes(const fs::path& folder) {
  ImageList list;
  list.set_source(folder.string());
  const std::vector<std::string> names = class_folders(folder);
  if (names.empty())
    throw UsageError("{}: there is no sub-folder; an image folder has one for each class", folder.string());
  for (size_t label = 0; label < names.size(); ++label) {
    const auto paths = pictures(folder, names[label]);
    if (paths.empty())
      throw UsageError("{}: class {} has no picture (.jpg, .jpeg, .png); remove the folder or fill it",
                       (folder / names[label]).string(), label);
    for (const std::string& path : paths) list.add(path, static_cast<int32_t>(label));
  }
  list.set_class_names(names);
  return list;
}

}  // namespace

std::string_view ImageList::path(int64_t index) const {
  const auto at = static_cast<size_t>(index);
  const uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(paths_).substr(begin, ends_[at] - begin);
}

int64_t ImageList::class_num() const {
  return labels_.empty() ? 0 : int64_t{*std::max_element(labels_.begin(), labels_.end())} + 1;
}

size_t ImageList::bytes() const {
  return paths_.size() + ends_.capacity() * sizeof ends_[0] + labels_.capacity() * sizeof labels_[0];
}

void ImageList::add(std::string_view path, int32_t label) {
  paths_ += path;
  ends_.push_back(paths_.size());
  labels_.push_back(label);
}

void ImageList::relabel() {
  std::map<int32_t, int32_t> numbers;
  for (const int32_t label : labels_)
    if (label != kUnlabelled) numbers.emplace(label, 0);
  int32_t next = 0;
  for (auto& [label, number] : numbers) number = next++;
  for (int32_t& label : labels_)
    if (label != kUnlabelled) label = numbers[label];
}

bool has_unread_ending(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || path.size() - dot > kLongestEnding) return false;
  const std::string ending = to_lower(path.substr(dot));
  return std::find(kUnreadEndings.begin(), kUnreadEndings.end(), ending) != kUnreadEndings.end();
}

ImageList read_image_list(const fs::path& file, const ImageListOptions& options) {
  check_delimiter(options);
  LineReader reader(file);
  ImageList list;
  list.set_source(file.string());
  std::error_code unknown;
  const uintmax_t bytes = fs::file_size(file, unknown);
  if (!unknown) list.reserve_paths(bytes);  // only what is written is taken from the machine
  Place place{file};
  while (const auto text = reader.next()) {
    const std::string_view line = trim(++place.line == 1 ? without_byte_order_mark(*text) : *text);
    if (!line.empty()) add_line(list, line, options, place);
  }
  if (list.size() == 0) throw UsageError("{}: the list has no picture in its {} lines", file.string(), place.line);
  if (!options.relabel) return list;
  list.relabel();
  check_range(list.class_num() - 1, options.class_num, place);
  return list;
}

ImageList read_image_folder(const fs::path& folder) {
  try {
    return read_classes(folder);
  } catch (const fs::filesystem_error& error) {
    throw SystemError(error.code().value(), "cannot read the image folder {}", error.path1().string());
  }
}

}  // namespace trireme::data
