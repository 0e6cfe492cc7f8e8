// From 8 bit pixels to the numbers a network reads, and what PaddleClas does to those.
//
//   std::vector<float> tensor(3 * 224 * 224);
//   normalize(image, NormalizeImage{}, tensor.data());
//   RandomErasing{.EPSILON = 0.25, .mode = ErasePixels::pixel}(tensor.data(), {224, 224}, random);
//
// Thread-safe.
#pragma once

#include <array>

#include "trireme/data/image/image.h"
#include "trireme/data/image/random.h"

namespace trireme::image {

/// (pixel * scale - mean) / std, in float arithmetic as numpy does it. The result is always channel after channel
/// (CHW): PaddleClas' `order` says how its input lies, and ours has one order only.
struct NormalizeImage {
  float scale = 1.0F / 255.0F;
  std::array<float, kChannels> mean{0.485F, 0.456F, 0.406F};
  std::array<float, kChannels> std{0.229F, 0.224F, 0.225F};
  int channel_num = 3;  ///< 4 adds a channel of zeros
};

/// Writes channel_num * height * width floats.
void normalize(const Image& image, const NormalizeImage& options, float* out);

enum class ErasePixels {
  constant,  ///< one given colour
  random,    ///< one random colour
  pixel,     ///< noise
};

/// Overwrites one rectangle of the normalised picture (arXiv 1708.04896), with probability EPSILON. Its share of the
/// area is uniform in [sl, sh], its shape h/w (or the logarithm of it) uniform in [r1, 1/r1].
struct RandomErasing {
  double EPSILON = 0.5;
  double sl = 0.02;
  double sh = 0.4;
  double r1 = 0.3;
  std::array<float, kChannels> mean{0, 0, 0};
  int attempt = 100;  ///< how often to try for a rectangle that fits
  bool use_log_aspect = false;
  ErasePixels mode = ErasePixels::constant;

  /// On kChannels planes of that size, one after the other.
  void operator()(float* chw, Size size, Random& random) const;
};

}  // namespace trireme::image
