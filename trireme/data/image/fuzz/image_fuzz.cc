// libFuzzer target for what comes from outside: bytes that are accepted as a picture have the size their header says,
// and a pipeline that decodes only a part of them gives the same numbers as one that decodes all.
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/image_fuzz -max_total_time=30 trireme/data/image/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "trireme/data/image/decode.h"
#include "trireme/data/image/pipeline.h"

namespace {

using namespace trireme::image;

const DecodeOptions kLimits{.max_pixels = 1 << 16};  // fast, and beyond it nothing new happens

std::vector<float> numbers_of(std::span<const char> bytes, Decoding decoding) {
  const Transforms transforms({ResizeImage{.resize_short = 12}, CropImage{.size = {8, 8}}, NormalizeImage{}},
                              {.decoding = decoding, .decode = kLimits});
  std::vector<float> numbers(transforms.elements());
  Random random(1);
  transforms.run(bytes, random, numbers.data());
  return numbers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const char> bytes(reinterpret_cast<const char*>(data), size);
  try {
    const Size promised = read_size(bytes, kLimits);
    const Image image = decode(bytes, kLimits);
    if (image.size() != promised) std::abort();
    if (image.pixels.size() != image.stride() * static_cast<size_t>(image.height)) std::abort();
    if (static_cast<int64_t>(image.width) > 50 * int64_t{image.height}) return 0;  // would be resized into a long strip
    if (static_cast<int64_t>(image.height) > 50 * int64_t{image.width}) return 0;
    if (numbers_of(bytes, Decoding::region) != numbers_of(bytes, Decoding::full)) std::abort();
  } catch (const ImageError&) {
  }
  return 0;
}
