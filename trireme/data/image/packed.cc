#include "trireme/data/image/packed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <future>
#include <utility>
#include <vector>

#include "trireme/core/crc32c.h"
#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/core/workers.h"
#include "trireme/data/image/decode.h"
#include "trireme/data/image/ops.h"
#include "trireme/data/image/pack_format.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr int kMaxThreads = 1024;
constexpr int kMaxSide = 1 << 16;
constexpr size_t kAhead = 4;  // pictures that are read ahead, for each thread

/// Of the paths in their order. Labels are the list's alone, and may change.
uint32_t sum_of(const ImageList& list) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < list.size(); ++i) sum = crc32c("\n", crc32c(list.path(i), sum));
  return sum;
}

struct Packed {
  std::string bytes;
  image::Size size;
  std::string problem;  // why there are no bytes
};

Packed pixels_of(const std::string& bytes, int short_side) {
  image::Image picture = image::decode(bytes);
  if (std::min(picture.width, picture.height) > short_side) {
    image::Random unused(0);
    image::ResizeImage{.resize_short = short_side, .method = {image::Interpolation::bilinear, image::Backend::pil}}(
        picture, unused);
  }
  return {{picture.pixels.begin(), picture.pixels.end()}, picture.size(), ""};
}

Packed pack_one(const fs::path& path, int short_side) {
  try {
    std::string bytes = read_picture(path);
    if (bytes.empty()) throw image::ImageError("the file is empty");
    return short_side == 0 ? Packed{std::move(bytes), {}, ""} : pixels_of(bytes, short_side);
  } catch (const image::ImageError& error) {
    return {"", {}, error.what()};
  }
}

void check_options(const ImageList& list, const PackOptions& options) {
  std::error_code ignored;
  if (list.size() == 0) throw UsageError("pack_images: the list is empty");
  if (!options.root.empty() && !fs::is_directory(options.root, ignored))
    throw UsageError("pack_images: {} is not a folder; the list's pictures, such as {}, are looked for there",
                     options.root.string(), list.path(0));
  if (options.short_side < 0 || options.short_side > kMaxSide || options.threads < 1 || options.threads > kMaxThreads)
    throw UsageError("pack_images: short_side is {} and threads is {}; they may be 0 to {} and 1 to {}",
                     options.short_side, options.threads, kMaxSide, kMaxThreads);
}

/// Writes pictures one behind the other, and remembers where.
class PackWriter {
 public:
  explicit PackWriter(const fs::path& path) : file_(path) { file_.write(kPackMagic); }

  void add(const Packed& picture) {
    file_.write(picture.bytes);
    const PackEntry entry{.offset = end_,
                          .bytes = static_cast<uint32_t>(picture.bytes.size()),
                          .sum = crc32c(picture.bytes),
                          .width = static_cast<uint32_t>(picture.size.width),
                          .height = static_cast<uint32_t>(picture.size.height)};
    entries_.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    end_ += picture.bytes.size();
  }

  void finish(const ImageList& list, int short_side) {
    file_.write(entries_);
    file_.write(list.source());
    file_.write(footer_text({.samples = static_cast<uint64_t>(list.size()),
                             .entries_at = end_,
                             .list_bytes = static_cast<uint32_t>(list.source().size()),
                             .list_sum = sum_of(list),
                             .short_side = static_cast<uint32_t>(short_side),
                             .entries_sum = crc32c(list.source(), crc32c(entries_))}));
    file_.commit();
  }
  uint64_t bytes() const { return end_; }

 private:
  DurableFile file_;
  uint64_t end_ = kPackMagic.size();
  std::string entries_;
};

/// A file in memory.
class Mapping {
 public:
  explicit Mapping(const fs::path& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
      throw UsageError("cannot read the packed pictures of {}: {}; make it: trireme pack", path.string(),
                       errno_text(errno));
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) throw SystemError(errno, "cannot ask for the size of {}", path.string());
    if (!S_ISREG(status.st_mode) || status.st_size == 0)
      throw UsageError("{} is empty or not a regular file, so it has no packed pictures; make it: trireme pack",
                       path.string());
    size_ = static_cast<size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED)
      throw SystemError(errno, "cannot map the {} bytes of {} into memory", size_, path.string());
    data_ = static_cast<const char*>(memory);
  }
  ~Mapping() { ::munmap(const_cast<char*>(data_), size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

void check_list(const fs::path& file, const PackIndex& index, const ImageList& list) {
  const PackFooter& footer = index.footer();
  const uint32_t sum = sum_of(list);
  if (footer.samples == static_cast<uint64_t>(list.size()) && footer.list_sum == sum) return;
  throw UsageError(
      "{} was made of another list: of {}, with {} pictures and checksum {:08x}; this one, {}, has {} and {:08x}; make "
      "it again: trireme pack",
      file.string(), index.list_name(), footer.samples, footer.list_sum, list.source(), list.size(), sum);
}

}  // namespace

std::string read_picture(const fs::path& path) {
  auto bytes = read_head(path, kMaxFileBytes + 1);
  if (!bytes) throw image::ImageError("{}", errno_text(errno));
  if (bytes->size() > kMaxFileBytes) throw image::ImageError("larger than the limit of {} bytes", kMaxFileBytes);
  return std::move(*bytes);
}

void pack_images(const fs::path& file, const ImageList& list, const PackOptions& options) {
  check_options(list, options);
  PackWriter writer(file);
  Workers workers(options.threads, "packing pictures");
  std::deque<std::future<Packed>> ahead;
  int64_t asked = 0, unread = 0;
  for (int64_t i = 0; i < list.size(); ++i) {
    for (; asked < list.size() && ahead.size() < kAhead * static_cast<size_t>(options.threads); ++asked)
      ahead.push_back(workers.run(
          [path = options.root / list.path(asked), side = options.short_side] { return pack_one(path, side); }));
    const Packed picture = ahead.front().get();
    ahead.pop_front();
    if (!picture.problem.empty()) {
      ++unread;
      log_warning("[data] {}: {}; it will be a bad picture of {}", (options.root / list.path(i)).string(),
                  picture.problem, file.string());
    }
    writer.add(picture);
  }
  if (unread == list.size())
    throw UsageError("pack_images: none of the {} pictures of the list can be read, such as {}", list.size(),
                     (options.root / list.path(0)).string());
  writer.finish(list, options.short_side);
  log_info("[data] {}: {} pictures ({} could not be read), {:.1f} MB", file.string(), list.size(), unread,
           static_cast<double>(writer.bytes()) / 1e6);
}

struct PackedImages::State {
  explicit State(fs::path path_)
      : path(std::move(path_)), file(path), index(file.bytes(), path.string()), is_checked(index.footer().samples) {}

  PackEntry entry(int64_t i) {
    const PackEntry found = index.entry(i);
    if (found.bytes == 0) throw image::ImageError("could not be read when {} was made", path.string());
    std::atomic<bool>& checked = is_checked[static_cast<size_t>(i)];
    if (checked.load(std::memory_order_relaxed)) return found;
    if (const uint32_t sum = crc32c(index.bytes(found)); sum != found.sum)
      throw UsageError(
          "{} is damaged: the checksum of picture {} is {:08x}, and {:08x} was promised; make it again: "
          "trireme pack",
          path.string(), i, sum, found.sum);
    checked.store(true, std::memory_order_relaxed);
    return found;
  }

  fs::path path;
  Mapping file;
  PackIndex index;
  std::vector<std::atomic<bool>> is_checked;
};

PackedImages::PackedImages(const fs::path& file, const ImageList& list) : state_(std::make_unique<State>(file)) {
  check_list(file, state_->index, list);
}
PackedImages::~PackedImages() = default;

bool PackedImages::holds_pixels() const {
  return state_->index.footer().short_side > 0;
}

std::string_view PackedImages::bytes(int64_t index) const {
  return state_->index.bytes(state_->entry(index));
}

void PackedImages::read(int64_t index, image::Image& image) const {
  const PackEntry entry = state_->entry(index);
  const std::string_view bytes = state_->index.bytes(entry);
  image.reshape(static_cast<int>(entry.width), static_cast<int>(entry.height));
  std::copy(bytes.begin(), bytes.end(), image.pixels.begin());
}

}  // namespace trireme::data
