#include "trireme/data/image/pack_format.h"

#include <bit>
#include <cstring>

#include "trireme/core/crc32c.h"
#include "trireme/core/error.h"
#include "trireme/data/image/image.h"

namespace trireme::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written as numbers lie in memory");
static_assert(sizeof(PackEntry) == 24 && sizeof(PackFooter) == 48);

constexpr const char* kAgain = "make it again: trireme pack";

uint32_t sum_of(const PackFooter& footer) {
  return crc32c({reinterpret_cast<const char*>(&footer), offsetof(PackFooter, footer_sum)});
}

bool fits(const PackEntry& entry, const PackFooter& footer) {
  const uint64_t pixels = uint64_t{entry.width} * entry.height;
  return entry.offset >= kPackMagic.size() && entry.offset <= footer.entries_at &&
         entry.bytes <= footer.entries_at - entry.offset &&
         (footer.short_side == 0 || entry.bytes == 0 ||
          (pixels <= UINT32_MAX / image::kChannels && entry.bytes == pixels * image::kChannels));
}

}  // namespace

std::string footer_text(PackFooter footer) {
  footer.footer_sum = sum_of(footer);
  kPackMagic.copy(footer.magic, kPackMagic.size());
  return {reinterpret_cast<const char*>(&footer), sizeof footer};
}

PackIndex::PackIndex(std::string_view file, const std::string& name) : file_(file) {
  if (!file.starts_with(kPackMagic))
    throw UsageError("{} is not a packed file of pictures (its first bytes are not {}); {}", name, kPackMagic, kAgain);
  check_footer(name);
  entries_ = file_.substr(footer_.entries_at, footer_.samples * sizeof(PackEntry));
  list_name_ = file_.substr(footer_.entries_at + entries_.size(), footer_.list_bytes);
  check_entries(name);
}

void PackIndex::check_footer(const std::string& name) {
  constexpr size_t kLeast = kPackMagic.size() + sizeof(PackFooter);
  if (file_.size() >= kLeast) std::memcpy(&footer_, file_.end() - sizeof footer_, sizeof footer_);
  if (std::string_view(footer_.magic, sizeof footer_.magic) != kPackMagic)
    throw UsageError("{} is cut off: its {} bytes do not end as a packed file does; {}", name, file_.size(), kAgain);
  if (footer_.footer_sum != sum_of(footer_))
    throw UsageError("{} is damaged: the checksum of its last {} bytes is {:08x}, and {:08x} was promised; {}", name,
                     sizeof footer_, sum_of(footer_), footer_.footer_sum, kAgain);
  const uint64_t room = file_.size() - sizeof footer_;
  const bool in_range = footer_.entries_at >= kPackMagic.size() && footer_.entries_at <= room &&
                        footer_.samples <= room / sizeof(PackEntry);
  const uint64_t promised = footer_.entries_at + footer_.samples * sizeof(PackEntry) + footer_.list_bytes;
  if (!in_range || promised != room)
    throw UsageError("{} is damaged: it has {} bytes, and its end speaks of {} pictures whose entries begin at {}; {}",
                     name, file_.size(), footer_.samples, footer_.entries_at, kAgain);
}

void PackIndex::check_entries(const std::string& name) const {
  const uint32_t sum = crc32c(list_name_, crc32c(entries_));
  if (sum != footer_.entries_sum)
    throw UsageError("{} is damaged: the checksum of its entries is {:08x}, and {:08x} was promised; {}", name, sum,
                     footer_.entries_sum, kAgain);
  for (int64_t i = 0; i < static_cast<int64_t>(footer_.samples); ++i)
    if (const PackEntry one = entry(i); !fits(one, footer_))
      throw UsageError("{} is damaged: picture {} has {} bytes at {}, but pictures end at {}, or {} x {} pixels; {}",
                       name, i, one.bytes, one.offset, footer_.entries_at, one.width, one.height, kAgain);
}

PackEntry PackIndex::entry(int64_t index) const {
  PackEntry found;
  std::memcpy(&found, entries_.data() + static_cast<size_t>(index) * sizeof found, sizeof found);
  return found;
}

}  // namespace trireme::data
