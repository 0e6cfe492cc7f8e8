#include "trireme/data/image/normalize.h"

#include <algorithm>
#include <cmath>

#include "trireme/data/image/simd.h"

namespace trireme::image {
namespace {

/// One operation after the other, as numpy does: no rewriting as a product and a sum, whose last digit differs.
TRIREME_WIDE void normalize_pixels(const uint8_t* pixels, size_t count, const NormalizeImage& options, float* red,
                                   float* green, float* blue) {
  const float scale = options.scale;
  const float mean0 = options.mean[0], mean1 = options.mean[1], mean2 = options.mean[2];
  const float std0 = options.std[0], std1 = options.std[1], std2 = options.std[2];
  for (size_t i = 0; i < count; ++i) {
    red[i] = (static_cast<float>(pixels[i * 3]) * scale - mean0) / std0;
    green[i] = (static_cast<float>(pixels[i * 3 + 1]) * scale - mean1) / std1;
    blue[i] = (static_cast<float>(pixels[i * 3 + 2]) * scale - mean2) / std2;
  }
}

int rounded_root(double x) {
  return static_cast<int>(std::nearbyint(std::sqrt(x)));
}

void erase(float* chw, Size size, const Region& part, const RandomErasing& options, Random& random) {
  for (int c = 0; c < kChannels; ++c) {
    float* plane = chw + static_cast<size_t>(c) * static_cast<size_t>(size.width) * static_cast<size_t>(size.height);
    const auto colour = static_cast<float>(options.mode == ErasePixels::random ? random.normal() : 0.0);
    for (int y = part.y; y < part.y + part.height; ++y) {
      float* row = plane + static_cast<size_t>(y) * static_cast<size_t>(size.width) + part.x;
      if (options.mode == ErasePixels::pixel)
        std::generate_n(row, part.width, [&random] { return static_cast<float>(random.normal()); });
      else
        std::fill_n(row, part.width,
                    options.mode == ErasePixels::random ? colour : options.mean[static_cast<size_t>(c)]);
    }
  }
}

}  // namespace

void normalize(const Image& image, const NormalizeImage& options, float* out) {
  const size_t plane = static_cast<size_t>(image.width) * static_cast<size_t>(image.height);
  normalize_pixels(image.pixels.data(), plane, options, out, out + plane, out + 2 * plane);
  if (options.channel_num > kChannels) std::fill_n(out + kChannels * plane, plane, 0.0F);
}

void RandomErasing::operator()(float* chw, Size size, Random& random) const {
  if (!random.chance(EPSILON)) return;
  const double area = static_cast<double>(size.width) * size.height;
  const double narrow = use_log_aspect ? std::log(r1) : r1;
  const double wide = use_log_aspect ? -narrow : 1 / r1;
  for (int i = 0; i < attempt; ++i) {
    const double target = random.uniform(sl, sh) * area;
    const double drawn = random.uniform(narrow, wide);
    const double aspect = use_log_aspect ? std::exp(drawn) : drawn;
    const int height = rounded_root(target * aspect);
    const int width = rounded_root(target / aspect);
    if (width >= size.width || height >= size.height) continue;
    const int y = random.integer(0, size.height - height);
    return erase(chw, size, {random.integer(0, size.width - width), y, width, height}, *this, random);
  }
}

}  // namespace trireme::image
