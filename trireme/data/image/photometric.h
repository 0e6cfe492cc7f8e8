// Changes of colour, pixel by pixel, equal to Pillow's ImageOps and ImageEnhance.
//
//   auto_contrast(image);
//   enhance_color(image, 0.3);  // 0: grey, 1: as it is, above: stronger
//
// In place. Thread-safe.
#pragma once

#include "trireme/data/image/image.h"

namespace trireme::image {

void auto_contrast(Image& image);  ///< the darkest value of each channel becomes 0, the lightest 255
void equalize(Image& image);       ///< every value about as frequent as the others
void invert(Image& image);
void posterize(Image& image, int bits);                     ///< keeps the upper bits, 0 … 8
void solarize(Image& image, double threshold);              ///< inverts what is at or above
void solarize_add(Image& image, int add, int below = 128);  ///< adds to what is below

/// Blends with a weaker version: 0 gives that version, 1 the image itself, more than 1 exaggerates.
void enhance_color(Image& image, double factor);       ///< from grey
void enhance_contrast(Image& image, double factor);    ///< from the mean brightness
void enhance_brightness(Image& image, double factor);  ///< from black
void enhance_sharpness(Image& image, double factor);   ///< from a smoothed image

/// Turns the colour circle by a share of it, -0.5 … 0.5, through 8 bit HSV.
void shift_hue(Image& image, double share);

}  // namespace trireme::image
