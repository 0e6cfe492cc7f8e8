// Turning and mirroring by the eight orientations of EXIF.
#pragma once

#include "trireme/data/image/image.h"

namespace trireme::image {

/// Makes the image upright. 1: nothing to do; 2 mirrored, 3 upside down, 4 both; 5 … 8 the same lying on a side.
void orient(Image& image, int orientation);
/// The size that gives.
Size oriented(Size stored, int orientation);

}  // namespace trireme::image
