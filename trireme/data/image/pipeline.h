// A whole pipeline: from the bytes of a file to the numbers a network reads.
//
//   const Transforms transforms({DecodeImage{}, RandCropImage{.size = {224, 224}}, RandFlipImage{}, NormalizeImage{}});
//   std::vector<float> tensor(transforms.elements());
//   transforms.run(bytes, random, tensor.data());
//
// The list is in the order of PaddleClas' transform_ops: DecodeImage first (it may be left out), then operators on
// pixels, then NormalizeImage, then RandomErasing; ToCHWImage changes nothing, as the result is CHW anyway.
//
// A JPEG is decoded only as far as the first operators need it:
//   - RandCropImage, or ResizeImage and CropImage, right after DecodeImage: only the rows and columns of the crop. The
//     result is equal to that of decoding everything, bit for bit.
//   - besides, when the crop is to be shrunk to less than half, at 1/2, 1/4 or 1/8 of its size (the JPEG's own scaled
//     transform, an average over 2x2 … 8x8 pixels). That is much faster and less aliased, but not equal: smooth
//     pictures differ by 2 of 255 in the mean, fine patterns by more. `automatic` does this for RandCropImage
//     (training) and not for ResizeImage (evaluation).
// What a JPEG's bytes hold below the crop is then not looked at, beyond that the file has its end.
//
// Guarantees: run() is const and thread-safe; the result depends on bytes, operators and the generator alone.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "trireme/data/image/augment.h"
#include "trireme/data/image/decode.h"
#include "trireme/data/image/normalize.h"
#include "trireme/data/image/ops.h"

namespace trireme::image {

struct ToCHWImage {};

using Operator = std::variant<DecodeImage, RandCropImage, RandFlipImage, ResizeImage, CropImage, RandomCropImage,
                              PadImage, AutoAugment, RandAugment, TimmAutoAugment, ColorJitter, RandomRotation,
                              NormalizeImage, RandomErasing, ToCHWImage>;

/// "RandCropImage"
std::string name_of(const Operator& op);

enum class Decoding {
  automatic,  ///< scaled for RandCropImage (unless TRIREME_WITHOUT=scaled_jpeg), region for the others
  full,       ///< everything, always
  region,     ///< only the crop; equal to full
  scaled,     ///< only the crop, and at a fraction of its size where that is enough
};

struct TransformsOptions {
  Decoding decoding = Decoding::automatic;
  DecodeOptions decode{};
};

class Transforms {
 public:
  /// Throws UsageError for a wrong order, for options out of range, and for a list that leaves the size of
  /// the result to the picture (no crop and no ResizeImage with a size).
  explicit Transforms(std::vector<Operator> operators, TransformsOptions options = {});

  /// Writes elements() floats. Throws ImageError when the bytes cannot be decoded, or `stop` ends it (DecodeOptions).
  void run(std::span<const char> encoded, Random& random, float* out_chw, const std::function<bool()>& stop = {}) const;
  /// The same for a picture that is there already; `image` is used up.
  void run(Image& image, Random& random, float* out_chw) const;

  int width() const { return size_.width; }
  int height() const { return size_.height; }
  int channels() const { return normalize_.channel_num; }
  size_t elements() const;

  /// The same pipeline with another size in RandCropImage, as PaddleClas' MultiScaleSampler wants it.
  /// Throws UsageError when there is no RandCropImage.
  Transforms resized(Size size) const;

 private:
  void run_pixels(Image& image, size_t first, Random& random) const;
  void finish(const Image& image, Random& random, float* out_chw) const;
  /// Decodes and runs the first operators; returns how many of operators_ are done.
  size_t decode_first(std::span<const char> encoded, const DecodeOptions& limits, Random& random, Image& image) const;

  std::vector<Operator> operators_;  // as given
  std::vector<Operator> pixel_operators_;
  std::vector<RandomErasing> erasings_;
  NormalizeImage normalize_;
  TransformsOptions options_;
  Size size_;
};

}  // namespace trireme::image
