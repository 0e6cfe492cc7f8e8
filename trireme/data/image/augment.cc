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

constexpr AffineOptions kNearest{.fill = kGrey};
constexpr AffineOptions kCubic{.interpolation = Interpolation::bicubic, .fill = kGrey};

double either_sign(double x, Random& random) {
  return random.chance(0.5) ? x : -x;
}

/// `value` is in the operation's own unit: an angle, a share, a number of bits, a threshold.
struct Operation {
  double most;  // the value at full strength
  void (*apply)(Image& image, double value, Random& random);
};

namespace operation {  // some share their names with the functions that they call

constexpr Operation shear_x{
    0.3, [](Image& image, double x, Random& random) { affine(image, {.xy = either_sign(x, random)}, kCubic); }};
constexpr Operation shear_y{
    0.3, [](Image& image, double x, Random& random) { affine(image, {.yx = either_sign(x, random)}, kCubic); }};
constexpr Operation translate_x{kMaxShift, [](Image& image, double x, Random& random) {
                                  affine(image, {.x0 = either_sign(x * image.width, random)}, kNearest);
                                }};
constexpr Operation translate_y{kMaxShift, [](Image& image, double x, Random& random) {
                                  affine(image, {.y0 = either_sign(x * image.height, random)}, kNearest);
                                }};
constexpr Operation rotate{30, [](Image& image, double x, Random&) { image::rotate(image, x, kNearest); }};
constexpr Operation color{
    0.9, [](Image& image, double x, Random& random) { enhance_color(image, 1 + either_sign(x, random)); }};
constexpr Operation posterize{4, [](Image& image, double x, Random&) { image::posterize(image, static_cast<int>(x)); }};
constexpr Operation solarize{256, [](Image& image, double x, Random&) { image::solarize(image, x); }};
constexpr Operation contrast{
    0.9, [](Image& image, double x, Random& random) { enhance_contrast(image, 1 + either_sign(x, random)); }};
constexpr Operation sharpness{
    0.9, [](Image& image, double x, Random& random) { enhance_sharpness(image, 1 + either_sign(x, random)); }};
constexpr Operation brightness{
    0.9, [](Image& image, double x, Random& random) { enhance_brightness(image, 1 + either_sign(x, random)); }};
constexpr Operation auto_contrast{0, [](Image& image, double, Random&) { image::auto_contrast(image); }};
constexpr Operation equalize{0, [](Image& image, double, Random&) { image::equalize(image); }};
constexpr Operation invert{0, [](Image& image, double, Random&) { image::invert(image); }};

}  // namespace operation

struct Step {
  const Operation& operation;
  double probability;
  int magnitude;
};

/// AutoAugment counts magnitudes 0 … 9, and its posterize and solarize grow stronger with them.
double auto_augment_value(const Step& step) {
  const double value = step.operation.most * step.magnitude / 9;
  if (&step.operation == &operation::posterize) return std::nearbyint(8 - value);
  return &step.operation == &operation::solarize ? 256 - value : value;
}

namespace operation {

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

// RandAugment's choice.
constexpr std::array<const Operation*, 14> kAll{&shear_x,    &shear_y,       &translate_x, &translate_y, &rotate,
                                                &color,      &posterize,     &solarize,    &contrast,    &sharpness,
                                                &brightness, &auto_contrast, &equalize,    &invert};

}  // namespace operation

double jitter(double strength, Random& random) {
  return random.uniform(std::max(0.0, 1 - strength), 1 + strength);
}

}  // namespace

void AutoAugment::operator()(Image& image, Random& random) const {
  for (const Step& step : operation::kImageNet[random.below(operation::kImageNet.size())])
    if (random.chance(step.probability)) step.operation.apply(image, auto_augment_value(step), random);
}

void RandAugment::operator()(Image& image, Random& random) const {
  for (int i = 0; i < num_layers; ++i) {
    const Operation& chosen = *operation::kAll[random.below(operation::kAll.size())];
    chosen.apply(image, chosen.most * magnitude / 10, random);
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
