#include "apps/infer_pictures.h"

#include <algorithm>
#include <array>
#include <cerrno>

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

Pictures list_folder(const fs::path& folder) {
  Pictures found;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code ignored;
    const fs::file_type type = entry->status(ignored).type();  // a broken link counts as a picture that cannot be read
    if (is_picture(entry->path()) && (type == fs::file_type::regular || type == fs::file_type::not_found))
      found.files.push_back(entry->path());
    else
      found.skipped.push_back(entry->path().filename().string());
  }
  if (failed) throw SystemError(failed.value(), "cannot read the folder {}", folder.string());
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.skipped.begin(), found.skipped.end());
  return found;
}

/// Returns what is wrong with the file, or "".
std::string read_picture(const fs::path& file, std::string& bytes) {
  try {
    auto content = read_file(file);
    if (!content) return "cannot be read: " + errno_text(errno);
    bytes = std::move(*content);
    return "";
  } catch (const UsageError& too_large) {
    return too_large.what();
  }
}

}  // namespace

Pictures find_pictures(const fs::path& image) {
  std::error_code failed;
  const fs::file_status status = fs::status(image, failed);
  if (status.type() == fs::file_type::not_found)
    throw UsageError("there is no file or folder {}", printable(image.string()));
  if (failed) throw UsageError("cannot look at {}: {}", printable(image.string()), failed.message());
  if (fs::is_regular_file(status)) return {{image}, {}};
  if (!fs::is_directory(status)) throw UsageError("{} is neither a file nor a folder", printable(image.string()));
  Pictures found = list_folder(image);
  if (found.files.empty())
    throw UsageError("no picture (.jpg, .jpeg, .png) in {}; other names there: {}", printable(image.string()),
                     found.skipped.size());
  return found;
}

PictureBatch read_pictures(const infer::Predictor& predictor, std::vector<fs::path> files) {
  std::vector<std::string> bytes(files.size()), errors(files.size());
  for (size_t i = 0; i < files.size(); ++i) errors[i] = read_picture(files[i], bytes[i]);
  const std::vector<std::string_view> views(bytes.begin(), bytes.end());
  PictureBatch batch{std::move(files), predictor.prepare(views)};
  for (size_t i = 0; i < views.size(); ++i)
    if (!errors[i].empty()) batch.prepared.errors[i] = errors[i];
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
