#include "trireme/data/image/png.h"

#include <spng.h>

#include <memory>
#include <new>

namespace trireme::image {
namespace {

// Of texts, colour profiles and EXIF together, which are read although nobody uses them.
constexpr size_t kMaxChunkBytes = size_t{1} << 20;

struct Free {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using Context = std::unique_ptr<spng_ctx, Free>;

void expect(int result) {
  if (result == SPNG_ECHUNK_LIMITS)
    throw ImageError("PNG with more than {} bytes of texts, colour profiles and EXIF; save it without them",
                     kMaxChunkBytes);
  if (result != 0) throw ImageError("damaged PNG: {}", spng_strerror(result));
}

Context open(std::span<const char> bytes) {
  Context context(spng_ctx_new(0));
  if (!context) throw std::bad_alloc();
  expect(spng_set_crc_action(context.get(), SPNG_CRC_ERROR, SPNG_CRC_ERROR));
  expect(spng_set_chunk_limits(context.get(), kMaxChunkBytes, kMaxChunkBytes));
  expect(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()));
  return context;
}

Size checked_size(spng_ctx* context, const DecodeOptions& options) {
  spng_ihdr header{};
  expect(spng_get_ihdr(context, &header));
  // Division, as the product of two 31 bit numbers is not the first to overflow: three channels follow.
  if (int64_t{header.width} > options.max_pixels / int64_t{header.height})
    throw ImageError("PNG of {}x{} pixels: more than the limit of {}; make it smaller", header.width, header.height,
                     options.max_pixels);
  return {static_cast<int>(header.width), static_cast<int>(header.height)};
}

}  // namespace

Size png_size(std::span<const char> bytes, const DecodeOptions& options) {
  const Context context = open(bytes);
  return checked_size(context.get(), options);
}

void read_png(std::span<const char> bytes, const DecodeOptions& options, Image& image) {
  const Context context = open(bytes);
  const Size size = checked_size(context.get(), options);
  image.reshape(size.width, size.height);
  expect(spng_decode_image(context.get(), image.pixels.data(), image.pixels.size(), SPNG_FMT_RGB8, 0));
  expect(spng_decode_chunks(context.get()));  // to the end of the file: is it there, and undamaged?
}

}  // namespace trireme::image
