#include "trireme/data/image/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "trireme/data/image/decode.h"

namespace trireme::image {
namespace {

constexpr int kMaxPixels = 1 << 27;  // as DecodeOptions has it for pictures as they come

void resize_in_place(Image& image, const Region& part, Size size, const ResizeMethod& method) {
  thread_local Image spare;
  resize(view_of(image, part), size, method, spare);
  std::swap(image, spare);
}

void expect_room(Size picture, Size wanted) {
  if (picture.width < wanted.width || picture.height < wanted.height)
    throw ImageError("picture of {}x{} pixels: smaller than the crop of {}x{}; resize it first", picture.width,
                     picture.height, wanted.width, wanted.height);
}

void mirror_row(uint8_t* row, int width) {
  for (uint8_t *a = row, *b = row + (width - 1) * kChannels; a < b; a += kChannels, b -= kChannels)
    for (int c = 0; c < kChannels; ++c) std::swap(a[c], b[c]);
}

}  // namespace

void crop(Image& image, const Region& region) {
  if (region == Region{0, 0, image.width, image.height}) return;
  const View part = view_of(image, region);
  const size_t bytes = static_cast<size_t>(region.width) * kChannels;
  uint8_t* to = image.pixels.data();  // never ahead of the row it takes
  for (int y = 0; y < region.height; ++y, to += bytes) std::memmove(to, part.row(y), bytes);
  image.reshape(region.width, region.height);
}

void flip(Image& image, int flip_code) {
  if (flip_code != 0)
    for (int y = 0; y < image.height; ++y) mirror_row(image.row(y), image.width);
  if (flip_code <= 0)
    for (int a = 0, b = image.height - 1; a < b; ++a, --b)
      std::swap_ranges(image.row(a), image.row(a) + image.stride(), image.row(b));
}

void DecodeImage::operator()(Image& image, Random& /*random*/) const {
  if (to_rgb) return;
  for (size_t i = 0; i < image.pixels.size(); i += kChannels) std::swap(image.pixels[i], image.pixels[i + 2]);
}

Region RandCropImage::sample(Size picture, Random& random) const {
  const double aspect = std::sqrt(random.uniform(ratio[0], ratio[1]));
  const double shape = static_cast<double>(picture.width) / picture.height;
  const double most = std::min(shape / (aspect * aspect), aspect * aspect / shape);
  const double share = random.uniform(std::min(scale[0], most), std::min(scale[1], most));
  const double side = std::sqrt(static_cast<double>(picture.width) * picture.height * share);
  const int width = std::clamp(static_cast<int>(side * aspect), 1, picture.width);
  const int height = std::clamp(static_cast<int>(side / aspect), 1, picture.height);
  const int x = random.integer(0, picture.width - width);
  return {x, random.integer(0, picture.height - height), width, height};
}

void RandCropImage::operator()(Image& image, Random& random) const {
  resize_in_place(image, sample(image.size(), random), size, method);
}

void RandFlipImage::operator()(Image& image, Random& random) const {
  if (sample(random)) flip(image, flip_code);
}

Size ResizeImage::target(Size picture) const {
  if (resize_short <= 0) return size;
  const double factor = static_cast<double>(resize_short) / std::min(picture.width, picture.height);
  const double width = std::nearbyint(picture.width * factor), height = std::nearbyint(picture.height * factor);
  if (width * height > kMaxPixels)
    throw ImageError(
        "picture of {}x{} pixels: too thin; with a shorter side of {} it would have {:.0f}x{:.0f}, more than {}",
        picture.width, picture.height, resize_short, width, height, kMaxPixels);
  return {static_cast<int>(width), static_cast<int>(height)};
}

void ResizeImage::operator()(Image& image, Random& /*random*/) const {
  resize_in_place(image, {0, 0, image.width, image.height}, target(image.size()), method);
}

Region CropImage::region(Size picture) const {
  expect_room(picture, size);
  return {(picture.width - size.width) / 2, (picture.height - size.height) / 2, size.width, size.height};
}

void CropImage::operator()(Image& image, Random& /*random*/) const {
  crop(image, region(image.size()));
}

void RandomCropImage::operator()(Image& image, Random& random) const {
  expect_room(image.size(), size);
  const int x = random.integer(0, image.width - size.width);
  crop(image, {x, random.integer(0, image.height - size.height), size.width, size.height});
}

void PadImage::operator()(Image& image, Random& /*random*/) const {
  thread_local Image spare;
  spare.reshape(left + image.width + right, top + image.height + bottom);
  for (size_t i = 0; i < spare.pixels.size(); ++i) spare.pixels[i] = fill[i % kChannels];
  for (int y = 0; y < image.height; ++y)
    std::memcpy(spare.row(top + y) + left * kChannels, image.row(y), image.stride());
  std::swap(image, spare);
}

}  // namespace trireme::image
