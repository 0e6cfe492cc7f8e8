// The operators of PaddleClas' classification pipelines. The fields bear the names of the YAML keys, with its defaults.
//
//   RandCropImage crop{.size = {224, 224}};
//   crop(image, random);
//   RandFlipImage{.flip_code = 1}(image, random);
//
// Every operator changes the image in place and draws all its random numbers from `random`. Operators are values
// without state: one may be used by many threads, each with its own image and generator. The augmentations
// (AutoAugment, RandAugment, TimmAutoAugment, ColorJitter, RandomRotation) are in augment.h.
#pragma once

#include <array>

#include "trireme/data/image/image.h"
#include "trireme/data/image/random.h"
#include "trireme/data/image/resize.h"

namespace trireme::image {

/// The first of every pipeline. to_rgb false: blue first, as OpenCV keeps it.
struct DecodeImage {
  bool to_rgb = true;

  void operator()(Image& image, Random& random) const;
};

/// A part of random size, place and shape, resized. Its shape w/h is uniform within `ratio`, its share of the picture's
/// area uniform within `scale`, the latter first cut to what fits the shape.
struct RandCropImage {
  Size size{224, 224};
  std::array<double, 2> scale{0.08, 1.0};
  std::array<double, 2> ratio{3.0 / 4.0, 4.0 / 3.0};
  ResizeMethod method{};

  void operator()(Image& image, Random& random) const;
  /// The part it would take of a picture of that size.
  Region sample(Size picture, Random& random) const;
};

/// Half the pictures. 1: left and right change places, 0: top and bottom, -1: both.
struct RandFlipImage {
  int flip_code = 1;

  static bool sample(Random& random) { return random.chance(0.5); }
  void operator()(Image& image, Random& random) const;
};

/// The shorter side becomes resize_short and the shape stays; resize_short 0: exactly `size`.
struct ResizeImage {
  int resize_short = 0;
  Size size{};
  ResizeMethod method{};

  void operator()(Image& image, Random& random) const;
  /// The size it gives to a picture of that size. Throws ImageError when a thin one would become larger than the
  /// memory: a line of 1x400000 pixels would have 256x102400000.
  Size target(Size picture) const;
};

/// The middle. Throws ImageError when the picture is smaller.
struct CropImage {
  Size size{224, 224};

  void operator()(Image& image, Random& random) const;
  Region region(Size picture) const;
};

/// A part of that size anywhere, not resized. Throws ImageError when the picture is smaller.
struct RandomCropImage {
  Size size{224, 224};

  void operator()(Image& image, Random& random) const;
};

/// Adds a border of one colour.
struct PadImage {
  int left = 0;
  int top = 0;
  int right = 0;
  int bottom = 0;
  std::array<uint8_t, kChannels> fill{0, 0, 0};

  void operator()(Image& image, Random& random) const;
};

/// What all operators do at the end: keep a part of the image.
void crop(Image& image, const Region& region);
void flip(Image& image, int flip_code);

}  // namespace trireme::image
