#include "trireme/data/image/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/data/image/test_images.h"

namespace trireme::image {
namespace {

using ::testing::ElementsAre;

constexpr ResizeMethod kAll[] = {
    {Interpolation::nearest, Backend::cv2},  {Interpolation::bilinear, Backend::cv2},
    {Interpolation::bicubic, Backend::cv2},  {Interpolation::nearest, Backend::pil},
    {Interpolation::bilinear, Backend::pil}, {Interpolation::bicubic, Backend::pil},
};

/// The row resized, and the same as a column: both axes must agree.
std::vector<int> resized(const std::vector<int>& values, int size, const ResizeMethod& method) {
  const Image row = grey_row(values);
  Image column, across, down;
  column.width = 1;
  column.height = row.width;
  column.pixels = row.pixels;
  resize(view_of(row), {size, 1}, method, across);
  resize(view_of(column), {1, size}, method, down);
  EXPECT_EQ(across.pixels, down.pixels);
  std::vector<int> out;
  for (size_t i = 0; i < across.pixels.size(); i += kChannels) out.push_back(across.pixels[i]);
  return out;
}

constexpr ResizeMethod kCv2{};

TEST(Resize, BilinearGrowsBetweenTheMiddles) {
  EXPECT_THAT(resized({0, 100}, 4, kCv2), ElementsAre(0, 25, 75, 100));
}

TEST(Resize, BilinearOfCv2ReadsTwoPixelsHoweverMuchItShrinks) {
  // The new middles lie at 1.5 and 5.5: the mean of pixels 1 and 2, and of 5 and 6.
  EXPECT_THAT(resized({0, 10, 20, 200, 0, 50, 70, 200}, 2, kCv2), ElementsAre(15, 60));
}

TEST(Resize, BilinearOfPilWeighsAllPixelsWhenItShrinks) {
  // A triangle over 8 pixels about 2: at distances 1.5 .5 .5 1.5 2.5 3.5 (two lie outside) weights 5 7 7 5 3 1 of 28.
  EXPECT_THAT(resized({0, 0, 0, 0, 224, 224, 224, 224}, 2, {Interpolation::bilinear, Backend::pil}),
              ElementsAre(32, 192));
}

TEST(Resize, NearestTakesTheFirstInCv2AndTheMiddleInPil) {
  EXPECT_THAT(resized({1, 2, 3, 4, 5, 6}, 2, {Interpolation::nearest, Backend::cv2}), ElementsAre(1, 4));
  EXPECT_THAT(resized({1, 2, 3, 4, 5, 6}, 2, {Interpolation::nearest, Backend::pil}), ElementsAre(2, 5));
}

TEST(Resize, BicubicOvershootsAsItsSlopeSays) {
  // At a quarter between the 2nd and 3rd pixel the last two of 0 0 160 160 weigh 29/128 - 3/128 with Pillow's slope of
  // -1/2, and 33.5/128 - 4.5/128 with OpenCV's of -3/4.
  const auto pil = resized({0, 0, 160, 160}, 8, {Interpolation::bicubic, Backend::pil});
  EXPECT_EQ(pil[3], 33);   // 32.5
  EXPECT_EQ(pil[4], 128);  // 160 - 32.5
  const auto cv2 = resized({0, 0, 160, 160}, 8, {Interpolation::bicubic, Backend::cv2});
  EXPECT_EQ(cv2[3], 36);   // 36.25
  EXPECT_EQ(cv2[4], 124);  // 160 - 36.25
}

TEST(Resize, OneColourStaysOneColour) {
  Image flat;
  flat.reshape(13, 9);
  std::fill(flat.pixels.begin(), flat.pixels.end(), uint8_t{201});
  for (const ResizeMethod& method : kAll)
    for (const Size size : {Size{13, 9}, Size{5, 4}, Size{40, 3}, Size{1, 1}, Size{2, 30}}) {
      Image out;
      resize(view_of(flat), size, method, out);
      EXPECT_EQ(out.size(), size);
      EXPECT_TRUE(std::all_of(out.pixels.begin(), out.pixels.end(), [](int p) { return p == 201; }))
          << static_cast<int>(method.interpolation) << ' ' << size.width;
    }
}

TEST(Resize, TheSameSizeChangesNothing) {
  const Image image = noise(31, 17);
  for (const ResizeMethod& method : kAll) {
    Image out;
    resize(view_of(image), image.size(), method, out);
    EXPECT_EQ(out, image) << static_cast<int>(method.interpolation);
  }
}

TEST(Resize, APartIsResizedAsIfItWereAlone) {
  const Image image = noise(64, 48);
  const Region part{10, 5, 33, 21};
  Image alone, expected, got;
  alone.reshape(part.width, part.height);
  for (int y = 0; y < part.height; ++y) std::copy_n(view_of(image, part).row(y), alone.stride(), alone.row(y));
  for (const ResizeMethod& method : kAll) {
    resize(view_of(alone), {16, 24}, method, expected);
    resize(view_of(image, part), {16, 24}, method, got);
    EXPECT_EQ(got, expected) << static_cast<int>(method.interpolation);
  }
}

TEST(Resize, EveryCombinationOfTinySizesWorks) {
  for (const ResizeMethod& method : kAll)
    for (int width = 1; width <= 4; ++width)
      for (int size = 1; size <= 9; ++size) {
        const Image image = noise(width, 5 - width);
        Image out;
        resize(view_of(image), {size, 10 - size}, method, out);
        EXPECT_EQ(out.size(), (Size{size, 10 - size}));
      }
}

}  // namespace
}  // namespace trireme::image
