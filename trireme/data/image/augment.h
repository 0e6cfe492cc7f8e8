// Augmentations of colour and form: AutoAugment, RandAugment in both of PaddleClas' variants, ColorJitter, rotation.
//
//   TimmAutoAugment augment{.config_str = "rand-m7-mstd0.5-inc1", .interpolation = Interpolation::bicubic};
//   augment(image, random);
//
// They are built of the functions in photometric.h and affine.h, which equal Pillow's. Values without state, as in
// ops.h.
#pragma once

#include <string>

#include "trireme/data/image/image.h"
#include "trireme/data/image/random.h"
#include "trireme/data/image/resize.h"

namespace trireme::image {

/// One of the 25 sub-policies found for ImageNet (arXiv 1805.09501), each two operations with a probability each.
struct AutoAugment {
  void operator()(Image& image, Random& random) const;
};

/// num_layers of fourteen operations, all with the same magnitude of 10 (arXiv 1909.13719).
struct RandAugment {
  int num_layers = 2;
  double magnitude = 5;

  void operator()(Image& image, Random& random) const;
};

/// RandAugment as in timm. config_str: "rand" and then, in any order, -mM (magnitude up to 10), -nN (layers),
/// -mstdS (the magnitude's deviation), -incI (stronger with the magnitude, whatever I is, as in PaddleClas), -w0 (its
/// weights). Other policies are refused.
struct TimmAutoAugment {
  std::string config_str = "rand-m9-mstd0.5-inc1";
  double prob = 1.0;
  Interpolation interpolation = Interpolation::bicubic;  ///< nearest, bilinear or bicubic
  int img_size = 224;                                    ///< not used by "rand", whose shifts are relative

  void operator()(Image& image, Random& random) const;
  /// Throws UsageError that names the part of config_str which cannot be used.
  void check() const;
};

/// Factors uniform in [max(0, 1 - x), 1 + x], the hue's shift in [-hue, hue], in random order.
struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  ///< at most 0.5
  double prob = 1.0;

  void operator()(Image& image, Random& random) const;
};

/// By an angle uniform in [-degrees, degrees] about the middle; the size stays.
struct RandomRotation {
  double degrees = 0;
  double prob = 1.0;
  Interpolation interpolation = Interpolation::nearest;
  uint8_t fill = 0;

  void operator()(Image& image, Random& random) const;
};

}  // namespace trireme::image
