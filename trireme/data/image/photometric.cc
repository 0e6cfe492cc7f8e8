#include "trireme/data/image/photometric.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace trireme::image {
namespace {

using Table = std::array<uint8_t, 256>;
using Counts = std::array<uint32_t, 256>;

void map_values(Image& image, const std::array<Table, kChannels>& tables) {
  for (size_t i = 0; i < image.pixels.size(); i += kChannels)
    for (size_t c = 0; c < kChannels; ++c) image.pixels[i + c] = tables[c][image.pixels[i + c]];
}

/// The same table for all channels, made by f(value).
template <typename F>
void apply_to_values(Image& image, const F& f) {
  Table table{};
  for (int value = 0; value < 256; ++value) table[static_cast<size_t>(value)] = static_cast<uint8_t>(f(value));
  for (uint8_t& pixel : image.pixels) pixel = table[pixel];
}

std::array<Counts, kChannels> histogram(const Image& image) {
  std::array<Counts, kChannels> counts{};
  for (size_t i = 0; i < image.pixels.size(); i += kChannels)
    for (size_t c = 0; c < kChannels; ++c) ++counts[c][image.pixels[i + c]];
  return counts;
}

Table identity() {
  Table table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i);
  return table;
}

Table stretched(const Counts& counts) {
  Table table = identity();
  int low = 0, high = 255;
  while (low < 255 && counts[static_cast<size_t>(low)] == 0) ++low;
  while (high > 0 && counts[static_cast<size_t>(high)] == 0) --high;
  if (high <= low) return table;
  const double scale = 255.0 / (high - low);
  const double offset = -low * scale;
  for (int i = 0; i < 256; ++i)
    table[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(static_cast<int>(i * scale + offset), 0, 255));
  return table;
}

Table equalized(const Counts& counts) {
  Table table = identity();
  uint64_t pixels = 0, last = 0;
  for (const uint32_t count : counts) {
    pixels += count;
    if (count != 0) last = count;
  }
  const uint64_t step = (pixels - last) / 255;
  if (step == 0) return table;
  uint64_t seen = step / 2;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<uint8_t>(std::min<uint64_t>(seen / step, 255));
    seen += counts[i];
  }
  return table;
}

template <typename MakeTable>
void apply_by_histogram(Image& image, const MakeTable& make) {
  const auto counts = histogram(image);
  std::array<Table, kChannels> tables{};
  std::transform(counts.begin(), counts.end(), tables.begin(), make);
  map_values(image, tables);
}

/// Pillow's weights of a grey value, in 16 bit.
int grey(const uint8_t* pixel) {
  return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16;
}

/// Cut, not rounded, as Pillow does.
uint8_t blend(int weak, int full, float factor) {
  const float value = static_cast<float>(weak) + factor * static_cast<float>(full - weak);
  return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

/// Pillow's SMOOTH: 3x3 with a middle of 5, over 13; the border stays.
Image smoothed(const Image& image) {
  Image out = image;
  const auto stride = static_cast<ptrdiff_t>(image.stride());
  for (int y = 1; y + 1 < image.height; ++y) {
    const uint8_t* from = image.row(y);
    for (ptrdiff_t i = kChannels; i < stride - kChannels; ++i) {
      int sum = 4 * from[i];
      for (const ptrdiff_t row : {-stride, ptrdiff_t{0}, stride})
        sum += from[i + row - kChannels] + from[i + row] + from[i + row + kChannels];
      out.row(y)[i] = static_cast<uint8_t>((2 * sum + 13) / 26);  // rounded
    }
  }
  return out;
}

struct Hsv {
  uint8_t hue, saturation, value;
};

Hsv to_hsv(const uint8_t* pixel) {
  const int red = pixel[0], green = pixel[1], blue = pixel[2];
  const int high = std::max({red, green, blue}), low = std::min({red, green, blue});
  if (high == low) return {0, 0, static_cast<uint8_t>(high)};
  const auto range = static_cast<float>(high - low);
  const float r = static_cast<float>(high - red) / range;
  const float g = static_cast<float>(high - green) / range;
  const float b = static_cast<float>(high - blue) / range;
  const auto sector = static_cast<float>(red == high ? b - g : green == high ? 2.0 + r - b : 4.0 + g - r);
  const auto hue = static_cast<float>(std::fmod(sector / 6.0 + 1.0, 1.0));
  return {static_cast<uint8_t>(std::clamp(static_cast<int>(hue * 255.0), 0, 255)),
          static_cast<uint8_t>(std::clamp(static_cast<int>(range / static_cast<float>(high) * 255.0), 0, 255)),
          static_cast<uint8_t>(high)};
}

void to_rgb(const Hsv& hsv, uint8_t* pixel) {
  const float h = static_cast<float>(hsv.hue) * 6 / 255;
  const float s = static_cast<float>(hsv.saturation) / 255;
  const auto sector = static_cast<int>(h);
  const float past = h - static_cast<float>(sector);
  const auto part = [&](float weaker) {
    return static_cast<uint8_t>(std::clamp(std::nearbyint(static_cast<float>(hsv.value) * (1 - weaker)), 0.0F, 255.0F));
  };
  const uint8_t v = hsv.value, p = part(s), q = part(s * past), t = part(s * (1 - past));
  const std::array<std::array<uint8_t, kChannels>, 6> sectors{
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  const auto& colour = sectors[static_cast<size_t>(sector) % 6];
  std::copy(colour.begin(), colour.end(), pixel);
}

}  // namespace

void auto_contrast(Image& image) {
  apply_by_histogram(image, stretched);
}

void equalize(Image& image) {
  apply_by_histogram(image, equalized);
}

void invert(Image& image) {
  apply_to_values(image, [](int value) { return 255 - value; });
}

void posterize(Image& image, int bits) {
  const int mask = 0xFF & ~((1 << (8 - std::clamp(bits, 0, 8))) - 1);
  apply_to_values(image, [mask](int value) { return value & mask; });
}

void solarize(Image& image, double threshold) {
  apply_to_values(image, [threshold](int value) { return value < threshold ? value : 255 - value; });
}

void solarize_add(Image& image, int add, int below) {
  apply_to_values(image, [add, below](int value) { return value < below ? std::min(255, value + add) : value; });
}

void enhance_color(Image& image, double factor) {
  const auto f = static_cast<float>(factor);
  for (size_t i = 0; i < image.pixels.size(); i += kChannels) {
    uint8_t* pixel = image.pixels.data() + i;
    const int weak = grey(pixel);
    for (int c = 0; c < kChannels; ++c) pixel[c] = blend(weak, pixel[c], f);
  }
}

void enhance_contrast(Image& image, double factor) {
  uint64_t sum = 0;
  for (size_t i = 0; i < image.pixels.size(); i += kChannels) sum += static_cast<uint64_t>(grey(&image.pixels[i]));
  const uint64_t pixels = image.pixels.size() / kChannels;
  const int mean = static_cast<int>((2 * sum + pixels) / (2 * pixels));  // rounded
  const auto f = static_cast<float>(factor);
  apply_to_values(image, [mean, f](int value) { return blend(mean, value, f); });
}

void enhance_brightness(Image& image, double factor) {
  const auto f = static_cast<float>(factor);
  apply_to_values(image, [f](int value) { return blend(0, value, f); });
}

void enhance_sharpness(Image& image, double factor) {
  const Image weak = smoothed(image);
  const auto f = static_cast<float>(factor);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = blend(weak.pixels[i], image.pixels[i], f);
}

void shift_hue(Image& image, double share) {
  const auto shift = static_cast<uint8_t>(static_cast<int>(share * 255));
  for (size_t i = 0; i < image.pixels.size(); i += kChannels) {
    uint8_t* pixel = image.pixels.data() + i;
    Hsv hsv = to_hsv(pixel);
    hsv.hue = static_cast<uint8_t>(hsv.hue + shift);
    to_rgb(hsv, pixel);
  }
}

}  // namespace trireme::image
