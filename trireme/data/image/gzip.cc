#include "trireme/data/image/gzip.h"

#include <errno.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

constexpr size_t kPiece = 1 << 20;

struct Close {
  void operator()(gzFile_s* file) const { ::gzclose_r(file); }
};
using GzipFile = std::unique_ptr<gzFile_s, Close>;

GzipFile open(const std::filesystem::path& path) {
  errno = 0;
  GzipFile file(::gzopen(path.c_str(), "rbe"));
  if (!file) throw SystemError(errno != 0 ? errno : ENOMEM, "cannot open {}", path.string());
  ::gzbuffer(file.get(), 128 << 10);
  return file;
}

[[noreturn]] void refuse(const GzipFile& file, const std::filesystem::path& path, size_t read) {
  const int system_error = errno;
  int code = 0;
  const char* reason = ::gzerror(file.get(), &code);
  if (code == Z_ERRNO) throw SystemError(system_error, "cannot read {}", path.string());
  throw UsageError("{}: the compressed data is damaged or cut off after {} unpacked bytes ({}); fetch the file again",
                   path.string(), read, reason);
}

}  // namespace

std::string read_plain_or_gzip(const std::filesystem::path& path, size_t limit) {
  const GzipFile file = open(path);
  std::string content;
  while (true) {
    const size_t before = content.size();
    content.resize(before + kPiece);
    const int got = ::gzread(file.get(), content.data() + before, kPiece);
    content.resize(before + static_cast<size_t>(std::max(got, 0)));
    if (got < 0) refuse(file, path, before);
    if (content.size() > limit)
      throw UsageError("{}: its content is larger than {} bytes, the most that is read", path.string(), limit);
    if (static_cast<size_t>(got) == kPiece) continue;
    int code = Z_OK;
    ::gzerror(file.get(), &code);
    if (code != Z_OK) refuse(file, path, content.size());  // an end inside of the compressed data
    return content;
  }
}

}  // namespace trireme::data
