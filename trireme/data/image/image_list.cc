#include "trireme/data/image/image_list.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

constexpr size_t kChunk = 1 << 20;
constexpr size_t kMaxLine = 1 << 16;  // PATH_MAX is 4096: a longer line means that this is not a list

/// Reads a file line by line, a piece at a time: a list of gigabytes is never in memory twice.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& file)
      : name_(file.string()), fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!fd_) throw SystemError(errno, "cannot open the image list {}", name_);
  }

  size_t file_bytes() const {
    struct stat status {};
    return ::fstat(fd_.get(), &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
  }

  /// Without its end. It lives until the next call.
  std::optional<std::string_view> next() {
    size_t end = buffer_.find('\n', at_);
    while (end == std::string::npos && more()) end = buffer_.find('\n', at_);
    if (end == std::string::npos && at_ == buffer_.size()) return std::nullopt;
    const std::string_view line = std::string_view(buffer_).substr(at_, end - at_);
    at_ = std::min(end, buffer_.size() - 1) + 1;
    return line;
  }

 private:
  /// Drops what was read and appends the next piece; false at the end.
  bool more() {
    buffer_.erase(0, at_);
    at_ = 0;
    if (buffer_.size() > kMaxLine)
      throw UsageError("{}: a line is longer than {} bytes; is it a text file?", name_, kMaxLine);
    const size_t kept = buffer_.size();
    buffer_.resize(kept + kChunk);
    ssize_t got = 0;
    do got = ::read(fd_.get(), buffer_.data() + kept, kChunk);
    while (got < 0 && errno == EINTR);
    if (got < 0) throw SystemError(errno, "cannot read the image list {}", name_);
    buffer_.resize(kept + static_cast<size_t>(got));
    return got > 0;
  }

  std::string name_;
  UniqueFd fd_;
  std::string buffer_;
  size_t at_ = 0;  // where the next line begins
};

struct Place {
  const std::filesystem::path& file;
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

ImageList read_image_list(const std::filesystem::path& file, const ImageListOptions& options) {
  check_delimiter(options);
  LineReader reader(file);
  ImageList list;
  list.reserve_paths(reader.file_bytes());  // only what is written is taken from the machine
  Place place{file};
  while (const auto text = reader.next()) {
    ++place.line;
    if (const std::string_view line = trim(*text); !line.empty()) add_line(list, line, options, place);
  }
  if (list.size() == 0) throw UsageError("{}: the list has no picture in its {} lines", file.string(), place.line);
  if (!options.relabel) return list;
  list.relabel();
  check_range(list.class_num() - 1, options.class_num, place);
  return list;
}

}  // namespace trireme::data
