#include "trireme/data/image/augment.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/data/image/affine.h"
#include "trireme/data/image/photometric.h"

namespace trireme::image {
namespace {

constexpr std::array<uint8_t, kChannels> kGrey{128, 128, 128};
constexpr double kMaxShift = 150.0 / 331;  // of the side; the policies were found on pictures of 331x331

enum class Kind {
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  color,
  posterize,
  solarize,
  contrast,
  sharpness,
  brightness,
  auto_contrast,
  equalize,
  invert,
};
constexpr int kKinds = 14;

double either_sign(double x, Random& random) {
  return random.chance(0.5) ? x : -x;
}

/// `value` is in the operation's own unit: an angle, a share, a number of bits, a threshold.
void apply(Kind kind, double value, Image& image, Random& random) {
  const AffineOptions nearest{.fill = kGrey};
  const AffineOptions cubic{.interpolation = Interpolation::bicubic, .fill = kGrey};
  switch (kind) {
    case Kind::shear_x:
      return affine(image, {.xy = either_sign(value, random)}, cubic);
    case Kind::shear_y:
      return affine(image, {.yx = either_sign(value, random)}, cubic);
    case Kind::translate_x:
      return affine(image, {.x0 = either_sign(value * image.width, random)}, nearest);
    case Kind::translate_y:
      return affine(image, {.y0 = either_sign(value * image.height, random)}, nearest);
    case Kind::rotate:
      return rotate(image, value, nearest);
    case Kind::color:
      return enhance_color(image, 1 + either_sign(value, random));
    case Kind::posterize:
      return posterize(image, static_cast<int>(value));
    case Kind::solarize:
      return solarize(image, value);
    case Kind::contrast:
      return enhance_contrast(image, 1 + either_sign(value, random));
    case Kind::sharpness:
      return enhance_sharpness(image, 1 + either_sign(value, random));
    case Kind::brightness:
      return enhance_brightness(image, 1 + either_sign(value, random));
    case Kind::auto_contrast:
      return auto_contrast(image);
    case Kind::equalize:
      return equalize(image);
    case Kind::invert:
      return invert(image);
  }
}

/// The value of an operation at a strength of 0 … 1.
double most_of(Kind kind) {
  switch (kind) {
    case Kind::shear_x:
    case Kind::shear_y:
      return 0.3;
    case Kind::translate_x:
    case Kind::translate_y:
      return kMaxShift;
    case Kind::rotate:
      return 30;
    case Kind::posterize:
      return 4;
    case Kind::solarize:
      return 256;
    default:
      return 0.9;
  }
}

/// AutoAugment counts magnitudes 0 … 9, and its posterize and solarize grow stronger with them.
double auto_augment_value(Kind kind, int magnitude) {
  const double value = most_of(kind) * magnitude / 9;
  if (kind == Kind::posterize) return std::nearbyint(8 - value);
  return kind == Kind::solarize ? 256 - value : value;
}

struct Step {
  Kind kind;
  double probability;
  int magnitude;
};

namespace policies {  // the short names of the kinds are those of functions, too

using enum Kind;

// The paper's table 9, ImageNet.
constexpr std::array<std::array<Step, 2>, 25> kImageNet{{
    {{{posterize, 0.4, 8}, {rotate, 0.6, 9}}},  {{{solarize, 0.6, 5}, {auto_contrast, 0.6, 5}}},
    {{{equalize, 0.8, 8}, {equalize, 0.6, 3}}}, {{{posterize, 0.6, 7}, {posterize, 0.6, 6}}},
    {{{equalize, 0.4, 7}, {solarize, 0.2, 4}}}, {{{equalize, 0.4, 4}, {rotate, 0.8, 8}}},
    {{{solarize, 0.6, 3}, {equalize, 0.6, 7}}}, {{{posterize, 0.8, 5}, {equalize, 1.0, 2}}},
    {{{rotate, 0.2, 3}, {solarize, 0.6, 8}}},   {{{equalize, 0.6, 8}, {posterize, 0.4, 6}}},
    {{{rotate, 0.8, 8}, {color, 0.4, 0}}},      {{{rotate, 0.4, 9}, {equalize, 0.6, 2}}},
    {{{equalize, 0.0, 7}, {equalize, 0.8, 8}}}, {{{invert, 0.6, 4}, {equalize, 1.0, 8}}},
    {{{color, 0.6, 4}, {contrast, 1.0, 8}}},    {{{rotate, 0.8, 8}, {color, 1.0, 2}}},
    {{{color, 0.8, 8}, {solarize, 0.8, 7}}},    {{{sharpness, 0.4, 7}, {invert, 0.6, 8}}},
    {{{shear_x, 0.6, 5}, {equalize, 1.0, 9}}},  {{{color, 0.4, 0}, {equalize, 0.6, 3}}},
    {{{equalize, 0.4, 7}, {solarize, 0.2, 4}}}, {{{solarize, 0.6, 5}, {auto_contrast, 0.6, 5}}},
    {{{invert, 0.6, 4}, {equalize, 1.0, 8}}},   {{{color, 0.6, 4}, {contrast, 1.0, 8}}},
    {{{equalize, 0.8, 8}, {equalize, 0.6, 3}}},
}};

}  // namespace policies

double jitter(double strength, Random& random) {
  return random.uniform(std::max(0.0, 1 - strength), 1 + strength);
}

}  // namespace

void AutoAugment::operator()(Image& image, Random& random) const {
  for (const Step& step : policies::kImageNet[random.below(policies::kImageNet.size())])
    if (random.chance(step.probability)) apply(step.kind, auto_augment_value(step.kind, step.magnitude), image, random);
}

void RandAugment::operator()(Image& image, Random& random) const {
  for (int i = 0; i < num_layers; ++i) {
    const auto kind = static_cast<Kind>(random.below(kKinds));
    apply(kind, most_of(kind) * magnitude / 10, image, random);
  }
}

void ColorJitter::operator()(Image& image, Random& random) const {
  if (!random.chance(prob)) return;
  std::array<int, 4> order{0, 1, 2, 3};
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (const int which : order) {
    if (which == 0 && brightness > 0) enhance_brightness(image, jitter(brightness, random));
    if (which == 1 && contrast > 0) enhance_contrast(image, jitter(contrast, random));
    if (which == 2 && saturation > 0) enhance_color(image, jitter(saturation, random));
    if (which == 3 && hue > 0) shift_hue(image, random.uniform(-hue, hue));
  }
}

void RandomRotation::operator()(Image& image, Random& random) const {
  if (!random.chance(prob)) return;
  rotate(image, random.uniform(-degrees, degrees), {.interpolation = interpolation, .fill = {fill, fill, fill}});
}

}  // namespace trireme::image
