// The eight orientations of EXIF: reading them, turning and mirroring by them.
#pragma once

#include <span>

#include "trireme/data/image/image.h"

namespace trireme::image {

/// The orientation of an APP1 segment's content ("Exif…"), 1 when it has none.
int parse_orientation(std::span<const unsigned char> exif);

/// Makes the image upright. 1: nothing to do; 2 mirrored, 3 upside down, 4 both; 5 … 8 the same lying on a side.
void orient(Image& image, int orientation);
/// The size that gives.
Size oriented(Size stored, int orientation);

}  // namespace trireme::image
