#include "trireme/data/image_dataset.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/data/image/packed.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr int kReplacements = 20;
constexpr size_t kShown = 20;  // bad pictures listed in a message

/// Different pictures that could not be used. Thread-safe.
class BadPictures {
 public:
  BadPictures(int64_t samples, const ImageDatasetOptions& options)
      : samples_(samples),
        limit_(std::max(options.bad_at_least, static_cast<int64_t>(options.bad_share * static_cast<double>(samples)))) {
  }

  void add(int64_t index, const std::string& path, const std::string& reason, bool replaced) {
    size_t so_far = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!known_.insert(index).second) return;
      if (first_.size() < kShown) first_.push_back(fmt::format("{}: {}", path, reason));
      so_far = known_.size();
    }
    log_warning("[data] {}: {}; {} ({} of {} are bad so far, {} are allowed)", path, reason,
                replaced ? "another picture takes its place" : "it is left out", so_far, samples_, limit_);
  }

  BadSamples all() const {
    const std::lock_guard lock(mutex_);
    return {samples_, limit_, {known_.begin(), known_.end()}, first_};
  }

  void check() const {
    std::unique_lock lock(mutex_);
    const bool too_many = static_cast<int64_t>(known_.size()) > limit_;
    lock.unlock();
    if (too_many) fail(fmt::format("{} are allowed (bad_share and bad_at_least of the dataset)", limit_));
  }

  [[noreturn]] void fail(const std::string& rule) const {
    const std::lock_guard lock(mutex_);
    throw UsageError("{} of {} pictures could not be used, {}. The first:\n  {}", known_.size(), samples_, rule,
                     join(first_, "\n  "));
  }

 private:
  int64_t samples_;
  int64_t limit_;
  mutable Mutex mutex_;
  std::unordered_set<int64_t> known_ TRIREME_GUARDED_BY(mutex_);
  std::vector<std::string> first_ TRIREME_GUARDED_BY(mutex_);
};

void check_options(const ImageDatasetOptions& options, const ImageList& list) {
  if (list.size() == 0) throw UsageError("ImageDataset: the list is empty");
  std::error_code ignored;
  if (options.packed.empty() && !options.root.empty() && !fs::is_directory(options.root, ignored))
    throw UsageError("ImageDataset: {} is not a folder; the list's pictures, such as {}, are looked for there",
                     options.root.string(), list.path(0));
  if (!(options.bad_share >= 0 && options.bad_share <= 1) || options.bad_at_least < 0)
    throw UsageError("ImageDataset: bad_share is {} and bad_at_least is {}; a share is from 0 to 1, a number 0 or more",
                     options.bad_share, options.bad_at_least);
}

/// How often each of the endings occurs that are not read: ".bmp: 2, .webp: 1".
std::string unread_text(const ImageList& list) {
  std::map<std::string, int64_t> counts;
  for (int64_t i = 0; i < list.size(); ++i)
    if (has_unread_ending(list.path(i))) ++counts[to_lower(fs::path(list.path(i)).extension().string())];
  std::vector<std::string> texts;
  for (const auto& [ending, count] : counts) texts.push_back(fmt::format("{}: {}", ending, count));
  return join(texts, ", ");
}

/// UsageError when the bytes are a picture of another format: it is not damaged, so it does not count as a bad one.
/// `others`: what the message has to say about the rest of the dataset.
void refuse_if_unread(const fs::path& path, std::string_view bytes, const std::string& others) {
  const std::string_view format = image::other_format(bytes);
  if (format.empty() || image::is_markup(bytes)) return;
  throw UsageError(
      "ImageDataset: {} is {}, and only JPEG and PNG are read; convert the pictures of other formats{}, for example by "
      "`mogrify -format png FILES`, or take them out of the dataset",
      path.string(), format, others);
}

/// Of those whose ending says so; the others are looked at when they are read. A JPEG with another ending is still a JPEG.
void refuse_unread_formats(const ImageList& list, const fs::path& root) {
  constexpr size_t kHead = 16;
  for (int64_t i = 0; i < list.size(); ++i) {
    if (!has_unread_ending(list.path(i))) continue;
    const fs::path path = root / list.path(i);
    refuse_if_unread(path, read_head(path, kHead).value_or(""), fmt::format(" ({})", unread_text(list)));
  }
}

}  // namespace

class ImageDataset::Reader {
 public:
  using Transforms = std::shared_ptr<const image::Transforms>;

  Reader(ImageList list, image::Transforms transforms, const ImageDatasetOptions& options)
      : list_(std::move(list)),
        root_(options.root),
        transforms_(std::make_shared<const image::Transforms>(std::move(transforms))),
        bad_(list_.size(), options) {
    check_options(options, list_);
    if (options.packed.empty()) {
      refuse_unread_formats(list_, root_);
    } else {
      packed_ = std::make_unique<const PackedImages>(options.packed, list_);
    }
  }

  const ImageList& list() const { return list_; }
  const BadPictures& bad() const { return bad_; }

  /// For pictures of that size; 0: their own.
  Transforms transforms(int64_t image_size) {
    if (image_size == 0) return transforms_;
    const std::lock_guard lock(mutex_);
    Transforms& found = resized_[image_size];
    const auto side = static_cast<int>(image_size);
    if (!found) found = std::make_shared<const image::Transforms>(transforms_->resized({side, side}));
    return found;
  }

  /// Writes the picture and returns its label; nothing when it is bad.
  std::optional<int64_t> read_own(int64_t index, uint64_t draw, const image::Transforms& transforms, float* out) {
    if (try_read(index, draw, transforms, out, false)) return list_.label(index);
    return std::nullopt;
  }

  /// Writes the picture, or one that takes its place, and returns its label.
  int64_t read(int64_t index, uint64_t draw, const image::Transforms& transforms, float* out) {
    if (try_read(index, draw, transforms, out, true)) return list_.label(index);
    for (int attempt = 1; attempt <= kReplacements; ++attempt) {
      const uint64_t other_draw = mix(draw, attempt);
      const auto other = static_cast<int64_t>(other_draw % static_cast<uint64_t>(list_.size()));
      if (try_read(other, other_draw, transforms, out, true)) return list_.label(other);
    }
    bad_.fail(fmt::format("and for one of them {} others in a row could not take its place", kReplacements));
  }

 private:
  bool try_read(int64_t index, uint64_t draw, const image::Transforms& transforms, float* out, bool replaced) {
    TORCH_CHECK_INDEX(index >= 0 && index < list_.size(), "sample ", index, " of a dataset of ", list_.size());
    const fs::path path = root_ / list_.path(index);
    std::string own;
    std::string_view bytes;
    image::Random random(draw);
    try {
      if (packed_ && packed_->holds_pixels()) {
        run_pixels(index, random, transforms, out);
        return true;
      }
      bytes = packed_ ? packed_->bytes(index) : std::string_view(own = read_picture(path));
      transforms.run(bytes, random, out);
      return true;
    } catch (const image::ImageError& error) {
      refuse_if_unread(path, bytes, fmt::format(", whatever their names say (`file {}`)", path.filename().string()));
      bad_.add(index, path.string(), error.what(), replaced);
      return false;
    }
  }

  void run_pixels(int64_t index, image::Random& random, const image::Transforms& transforms, float* out) const {
    thread_local image::Image picture;
    packed_->read(index, picture);
    transforms.run(picture, random, out);
  }

  ImageList list_;
  fs::path root_;
  std::unique_ptr<const PackedImages> packed_;  // null: each picture from its own file
  Transforms transforms_;
  BadPictures bad_;
  Mutex mutex_;
  std::map<int64_t, Transforms> resized_ TRIREME_GUARDED_BY(mutex_);
};

ImageDataset::ImageDataset(ImageList list, image::Transforms transforms, const ImageDatasetOptions& options)
    : reader_(std::make_shared<Reader>(std::move(list), std::move(transforms), options)) {}

int64_t ImageDataset::size() const {
  return reader_->list().size();
}

const ImageList& ImageDataset::list() const {
  return reader_->list();
}

BadSamples ImageDataset::bad() const {
  return reader_->bad().all();
}

Sample ImageDataset::get(int64_t index, uint64_t draw) const {
  const Batch one = batch(Pick{{index}, {draw}, draw});
  return {one.data[0], one.target[0]};
}

Batch ImageDataset::batch(const Pick& pick) const {
  reader_->bad().check();
  const auto transforms = reader_->transforms(pick.image_size);
  const auto count = static_cast<int64_t>(pick.indices.size());
  Batch batch{torch::empty({count, transforms->channels(), transforms->height(), transforms->width()}),
              torch::empty({count}, torch::kInt64)};
  auto* out = batch.data.data_ptr<float>();
  auto* target = batch.target.data_ptr<int64_t>();
  int64_t rows = 0;
  for (size_t i = 0; i < pick.indices.size(); ++i) {
    const int64_t index = pick.indices[i];
    const auto label = pick.leave_out_bad ? reader_->read_own(index, pick.draws[i], *transforms, out)
                                          : reader_->read(index, pick.draws[i], *transforms, out);
    if (!label) continue;
    target[rows++] = *label;
    out += transforms->elements();
  }
  return rows == count ? batch : Batch{batch.data.narrow(0, 0, rows), batch.target.narrow(0, 0, rows)};
}

}  // namespace trireme::data
