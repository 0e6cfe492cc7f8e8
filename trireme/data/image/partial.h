// Decoding no more of a JPEG than a resized part of it needs.
#pragma once

#include "trireme/data/image/jpeg.h"
#include "trireme/data/image/resize.h"

namespace trireme::image {

struct ResizedPart {
  Region part;         ///< of the picture, which is to be resized
  Size size;           ///< to that
  Region window = {};  ///< of which only this is wanted
  ResizeMethod method = {};
  bool scaled = false;    ///< may be decoded at a fraction when the part shrinks to less than half
  bool mirrored = false;  ///< left and right change places, at no cost
};

/// The largest of 8, 4, 2, 1 that leaves at least the size it is resized to.
int best_denominator(const ResizedPart& wanted);

/// Decodes and resizes.
void read_resized(JpegReader& reader, const ResizedPart& wanted, Image& out);

}  // namespace trireme::image
