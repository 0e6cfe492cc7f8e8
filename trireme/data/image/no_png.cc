// In the place of png.cc where there is no libspng.
#include "trireme/data/image/png.h"

namespace trireme::image {
namespace {

[[noreturn]] void refuse() {
  throw ImageError("a PNG, but this build has no libspng; install libspng-dev and build again, or convert it to JPEG");
}

}  // namespace

Size png_size(std::span<const char> /*bytes*/, const DecodeOptions& /*options*/) {
  refuse();
}

void read_png(std::span<const char> /*bytes*/, const DecodeOptions& /*options*/, Image& /*image*/) {
  refuse();
}

}  // namespace trireme::image
