// libFuzzer target for packed files: one whose index is accepted has its pictures inside of it, of the sizes that their
// entries say. Bytes are also tried as they would be with right checksums, which a fuzzer cannot guess.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/pack_fuzz -max_total_time=30 trireme/data/image/fuzz/packs
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "trireme/core/crc32c.h"
#include "trireme/core/error.h"
#include "trireme/data/image/image.h"
#include "trireme/data/image/pack_format.h"

namespace {

using namespace trireme::data;

void look_at(const std::string& file) {
  const PackIndex index(file, "fuzz");
  for (int64_t i = 0; i < static_cast<int64_t>(index.footer().samples); ++i) {
    const PackEntry entry = index.entry(i);
    const std::string_view bytes = index.bytes(entry);
    const uint64_t pixels = uint64_t{entry.width} * entry.height * trireme::image::kChannels;
    if (bytes.size() != entry.bytes || bytes.data() + bytes.size() > file.data() + file.size()) std::abort();
    if (index.footer().short_side > 0 && !bytes.empty() && bytes.size() != pixels) std::abort();
    trireme::crc32c(bytes);  // reads all of them
  }
}

std::string with_sums(std::string file) {
  PackFooter footer;
  if (file.size() < kPackMagic.size() + sizeof footer) return file;
  const size_t end = file.size() - sizeof footer;
  std::memcpy(&footer, file.data() + end, sizeof footer);
  const size_t begin = std::min<size_t>(footer.entries_at, end);
  footer.entries_sum = trireme::crc32c(std::string_view(file).substr(begin, end - begin));
  file.replace(end, sizeof footer, footer_text(footer));
  return file.replace(0, kPackMagic.size(), kPackMagic);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const std::string& file : {bytes, with_sums(bytes)}) {
    try {
      look_at(file);
    } catch (const trireme::UsageError&) {
    }
  }
  return 0;
}
