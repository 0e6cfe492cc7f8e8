// Pictures for tests, and JPEG and PNG files of them. Link libjpeg and, where there is one, spng.
#pragma once

#include <cstdio>
//
#include <jpeglib.h>
#ifndef TRIREME_WITHOUT_PNG
#include <spng.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/data/image/image.h"

namespace trireme::image {

/// Smooth waves of colour, different for every seed: JPEG keeps them well.
inline Image waves(int width, int height, int seed = 0) {
  Image image;
  image.reshape(width, height);
  const auto triangle = [](int x, int period) { return std::abs(x % period * 2 - period) * 255 / period; };
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      uint8_t* pixel = image.row(y) + x * kChannels;
      pixel[0] = static_cast<uint8_t>(triangle(x + 17 * seed, 90));
      pixel[1] = static_cast<uint8_t>(triangle(y + 29 * seed, 70));
      pixel[2] = static_cast<uint8_t>(triangle(x + y + 11 * seed, 120));
    }
  return image;
}

inline Image grey_row(const std::vector<int>& values) {
  Image image;
  image.reshape(static_cast<int>(values.size()), 1);
  for (size_t i = 0; i < values.size(); ++i)
    std::fill_n(image.pixels.begin() + static_cast<ptrdiff_t>(i * 3), 3, static_cast<uint8_t>(values[i]));
  return image;
}

/// A different value everywhere: the hardest there is for resampling.
inline Image noise(int width, int height, uint32_t seed = 1) {
  Image image;
  image.reshape(width, height);
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>((seed = seed * 1664525u + 1013904223u) >> 24);
  return image;
}

struct JpegOptions {
  int quality = 92;
  int sampling = 2;    ///< 2: colour at half size both ways (4:2:0), 1: at full size
  int sampling_y = 0;  ///< 0: as sampling
  bool progressive = false;
  bool grey = false;    ///< the red channel alone
  bool cmyk = false;    ///< Adobe's inverted CMYK, of the image's red, green, blue and 255
  int restart = 0;      ///< MCUs between restart markers
  int orientation = 0;  ///< 1 … 8: in an EXIF segment
};

/// An APP1 segment that says only how the picture is turned.
inline std::string exif_of(int orientation) {
  std::string exif("Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0", 32);
  exif[25] = static_cast<char>(orientation);
  return exif;
}

inline std::string jpeg_of(const Image& image, const JpegOptions& options = {}) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);  // tests give it nothing to complain about
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's own type
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = options.grey ? 1 : options.cmyk ? 4 : kChannels;
  jpeg.in_color_space = options.grey ? JCS_GRAYSCALE : options.cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, options.quality, TRUE);
  jpeg.restart_interval = static_cast<unsigned>(options.restart);
  if (!options.grey && !options.cmyk) {
    jpeg.comp_info[0].h_samp_factor = options.sampling;
    jpeg.comp_info[0].v_samp_factor = options.sampling_y > 0 ? options.sampling_y : options.sampling;
  }
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  if (options.orientation > 0) {
    const std::string exif = exif_of(options.orientation);
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  std::vector<JSAMPLE> row(image.stride() * 2);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const uint8_t* pixel = image.row(y) + x * kChannels;
      JSAMPLE* to = row.data() + static_cast<ptrdiff_t>(x) * jpeg.input_components;
      for (int c = 0; c < jpeg.input_components; ++c) to[c] = c < kChannels ? pixel[c] : 255;
    }
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&jpeg, rows, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return bytes;
}

#ifdef TRIREME_WITHOUT_PNG
inline std::string png_of(const Image& /*image*/) {
  throw std::runtime_error("png_of: this build has no libspng");
}
#else
/// Any kind of PNG: `samples` as PNG stores them (16 bit: high byte first), `palette` red, green, blue per entry.
struct PngOptions {
  int bit_depth = 8;
  int color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  std::vector<uint8_t> palette{};
  std::string text{};  ///< in a chunk of its own
};

inline std::string png_of(int width, int height, const std::vector<uint8_t>& samples, const PngOptions& options) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = static_cast<uint32_t>(width);
  header.height = static_cast<uint32_t>(height);
  header.bit_depth = static_cast<uint8_t>(options.bit_depth);
  header.color_type = static_cast<uint8_t>(options.color_type);
  spng_set_ihdr(context, &header);
  if (!options.palette.empty()) {
    spng_plte palette{};
    palette.n_entries = static_cast<uint32_t>(options.palette.size() / kChannels);
    for (size_t i = 0; i < palette.n_entries; ++i)
      palette.entries[i] = {options.palette[3 * i], options.palette[3 * i + 1], options.palette[3 * i + 2], 255};
    spng_set_plte(context, &palette);
  }
  std::string text = options.text;  // until it is encoded
  if (!text.empty()) {
    spng_text chunk{};
    std::copy_n("key", 4, chunk.keyword);
    chunk.type = SPNG_TEXT;
    chunk.text = text.data();
    chunk.length = text.size();
    spng_set_text(context, &chunk, 1);
  }
  int failed = spng_encode_image(context, samples.data(), samples.size(), SPNG_FMT_RAW, SPNG_ENCODE_FINALIZE);
  size_t size = 0;
  void* memory = failed ? nullptr : spng_get_png_buffer(context, &size, &failed);
  std::string bytes(static_cast<const char*>(memory), memory == nullptr ? 0 : size);
  std::free(memory);
  spng_ctx_free(context);
  if (bytes.empty()) throw std::runtime_error("png_of: " + std::string(spng_strerror(failed)));
  return bytes;
}

inline std::string png_of(const Image& image) {
  return png_of(image.width, image.height, image.pixels, {});
}
#endif

}  // namespace trireme::image
