#include "apps/infer_pictures.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::apps {
namespace {

namespace fs = std::filesystem;

bool is_picture(const fs::path& path) {
  static const std::array<std::string_view, 3> kEndings = {".jpg", ".jpeg", ".png"};
  return std::find(kEndings.begin(), kEndings.end(), to_lower(path.extension().string())) != kEndings.end();
}

void add_entry(const fs::directory_entry& entry, const fs::path& folder, Pictures& found) {
  std::error_code ignored;
  const fs::file_type type = entry.status(ignored).type();  // a broken link counts as a picture that cannot be read
  if (is_picture(entry.path()) && (type == fs::file_type::regular || type == fs::file_type::not_found))
    found.files.push_back(entry.path());
  else
    found.skipped.push_back(entry.path().lexically_relative(folder).string());
}

template <typename Iterator>
Pictures list_folder(const fs::path& folder) {
  Pictures found;
  std::error_code failed;
  for (Iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code ignored;
    const bool entered = std::is_same_v<Iterator, fs::recursive_directory_iterator> && entry->is_directory(ignored) &&
                         !entry->is_symlink(ignored);
    if (!entered) add_entry(*entry, folder, found);
  }
  if (failed) throw SystemError(failed.value(), "cannot read the folder {}", folder.string());
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.skipped.begin(), found.skipped.end());
  return found;
}

void append(Pictures& all, Pictures more) {
  std::move(more.files.begin(), more.files.end(), std::back_inserter(all.files));
  std::move(more.skipped.begin(), more.skipped.end(), std::back_inserter(all.skipped));
}

Pictures in_folder(const fs::path& folder, bool recursive) {
  Pictures found =
      recursive ? list_folder<fs::recursive_directory_iterator>(folder) : list_folder<fs::directory_iterator>(folder);
  if (found.files.empty())
    throw UsageError("no picture (.jpg, .jpeg, .png) in {}; other names there: {}", printable(folder.string()),
                     found.skipped.size());
  return found;
}

/// A file or a folder.
Pictures at_path(const fs::path& image, bool recursive) {
  std::error_code failed;
  const fs::file_status status = fs::status(image, failed);
  if (status.type() == fs::file_type::not_found)
    throw UsageError("there is no file or folder {}", printable(image.string()));
  if (failed) throw UsageError("cannot look at {}: {}", printable(image.string()), failed.message());
  if (fs::is_regular_file(status)) return {{image}, {}};
  if (!fs::is_directory(status)) throw UsageError("{} is neither a file nor a folder", printable(image.string()));
  return in_folder(image, recursive);
}

/// What the shell would make of it; nothing when it is not a pattern, or a file has just that name.
std::vector<std::string> matches_of(const std::string& pattern) {
  std::error_code ignored;
  if (pattern.find_first_of("*?[") == std::string::npos || fs::exists(pattern, ignored)) return {};
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty())
    throw UsageError("there is no file or folder {}, and none fits it as a pattern", printable(pattern));
  return paths;
}

/// A file that has the name of standard input.
std::string as_file(const std::string& name) {
  return name == kStandardInput ? "./" + name : name;
}

Pictures of_image(const std::string& image, bool recursive) {
  if (image == kStandardInput) return {{kStandardInput}, {}};
  const std::vector<std::string> matches = matches_of(image);
  if (matches.empty()) return at_path(image, recursive);
  Pictures all;
  for (const std::string& match : matches) append(all, at_path(as_file(match), recursive));
  return all;
}

std::string all_of_stdin() {
  std::string bytes;
  std::array<char, 1 << 16> part;
  while (const size_t count = std::fread(part.data(), 1, part.size(), stdin)) {
    bytes.append(part.data(), count);
    if (bytes.size() > kReadLimit)
      throw UsageError("standard input has more than the {} bytes that are read", kReadLimit);
  }
  if (std::ferror(stdin) != 0) throw SystemError(errno, "cannot read standard input");
  return bytes;
}

/// The whole line where that is a file; else without the label behind it, as PaddleClas' lists have it.
fs::path picture_in(const std::string& line, const fs::path& root) {
  constexpr const char* kLabel = "0123456789,";  // several with commas
  fs::path whole = root / as_file(line);
  const size_t gap = line.find_last_of(" \t");
  std::error_code ignored;
  if (gap == std::string::npos || fs::exists(whole, ignored)) return whole;
  const bool labelled = gap + 1 < line.size() && line.find_first_not_of(kLabel, gap + 1) == std::string::npos;
  return labelled ? root / as_file(std::string(trim(line.substr(0, gap)))) : whole;
}

/// The names are not checked here: a picture that cannot be read gets its error when it is read, as any other does.
Pictures in_list(const std::string& list, const fs::path& root) {
  const auto text = list == kStandardInput ? all_of_stdin() : read_file(list);
  if (!text) throw SystemError(errno, "cannot read the list {}", printable(list));
  Pictures found;
  for (std::string line : split(without_byte_order_mark(*text), '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    if (!trim(line).empty()) found.files.push_back(picture_in(line, root));
  }
  if (found.files.empty()) throw UsageError("the list {} names no picture", printable(list));
  return found;
}

struct FileContent {
  std::string bytes = {};
  std::string error = {};  // what is wrong with the file
};

FileContent read_picture_file(const fs::path& file) {
  try {
    if (file == kStandardInput) return {.bytes = all_of_stdin()};
    auto content = read_file(file);
    if (!content) return {.error = "cannot be read: " + errno_text(errno)};
    return {.bytes = std::move(*content)};
  } catch (const UsageError& too_large) {
    return {.error = too_large.what()};
  }
}

FileContent read_picture(const fs::path& file) {
  if (file != kStandardInput) return read_picture_file(file);
  static const FileContent once = read_picture_file(file);  // a benchmark asks again
  return once;
}

}  // namespace

Pictures find_pictures(const PictureSources& sources) {
  Pictures all;
  for (const std::string& image : sources.images) append(all, of_image(image, sources.recursive));
  for (const std::string& list : sources.lists) append(all, in_list(list, sources.image_root));
  return all;
}

PictureBatch read_pictures(const infer::Predictor& predictor, std::vector<fs::path> files) {
  std::vector<FileContent> contents;
  for (const fs::path& file : files) contents.push_back(read_picture(file));
  std::vector<std::string_view> views;
  for (const FileContent& content : contents) views.push_back(content.bytes);
  PictureBatch batch{std::move(files), predictor.prepare(views)};
  for (size_t i = 0; i < contents.size(); ++i)
    if (!contents[i].error.empty()) batch.prepared.errors[i] = contents[i].error;
  return batch;
}

PictureReader::PictureReader(const infer::Predictor& predictor, std::vector<fs::path> files, int batch_size)
    : predictor_(predictor), files_(std::move(files)), batch_size_(static_cast<size_t>(batch_size)) {
  begin_next();
}

PictureBatch PictureReader::make(size_t first) const {
  const size_t last = std::min(first + batch_size_, files_.size());
  const auto begin = files_.begin();
  return read_pictures(predictor_,
                       {begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last)});
}

void PictureReader::begin_next() {
  if (at_ >= files_.size()) return;
  coming_ = ahead_.run([this, first = at_] { return make(first); });
  at_ += batch_size_;
}

bool PictureReader::next(PictureBatch& batch) {
  if (!coming_.valid()) return false;
  batch = coming_.get();
  begin_next();
  return true;
}

}  // namespace trireme::apps
