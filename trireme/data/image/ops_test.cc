#include "trireme/data/image/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/data/image/decode.h"
#include "trireme/data/image/normalize.h"
#include "trireme/data/image/test_images.h"

namespace trireme::image {
namespace {

/// One pixel of each value 0, 1, 2 … in its first channel, which tells where it was.
Image numbered(int width, int height) {
  Image image;
  image.reshape(width, height);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i / 3 + 50 * (i % 3));
  return image;
}

std::vector<int> numbers(const Image& image) {
  std::vector<int> found;
  for (size_t i = 0; i < image.pixels.size(); i += kChannels) found.push_back(image.pixels[i]);
  return found;
}

using Numbers = std::vector<int>;

TEST(RandCropImage, StaysWithinAndKeepsItsPromises) {
  const RandCropImage crop;
  for (const Size picture : {Size{500, 375}, Size{375, 500}, Size{1000, 40}, Size{3, 3}, Size{1, 1}, Size{1, 200}}) {
    Random random(1);
    for (int i = 0; i < 500; ++i) {
      const Region part = crop.sample(picture, random);
      ASSERT_GE(part.x, 0);
      ASSERT_GE(part.y, 0);
      ASSERT_GE(part.width, 1);
      ASSERT_GE(part.height, 1);
      ASSERT_LE(part.x + part.width, picture.width);
      ASSERT_LE(part.y + part.height, picture.height);
    }
  }
}

TEST(RandCropImage, SamplesAreaAndShapeEvenly) {
  const RandCropImage crop;
  Random random(2);
  double area = 0, shape = 0, left = 0;
  constexpr int kSamples = 20000;
  for (int i = 0; i < kSamples; ++i) {
    const Region part = crop.sample({1000, 1000}, random);
    const double ratio = static_cast<double>(part.width) / part.height;
    ASSERT_GT(ratio, 0.74);
    ASSERT_LT(ratio, 1.35);
    shape += ratio / kSamples;
    area += part.width * part.height / 1e6 / kSamples;
    left += part.x / (1000.0 - part.width + 1) / kSamples;
  }
  EXPECT_NEAR(shape, (0.75 + 4.0 / 3) / 2, 0.01);  // uniform, not log-uniform as in torchvision
  // Uniform in 0.08 … min(1, r, 1/r), whose mean over the shapes is (7/32 + ln(4/3)) / (7/12).
  EXPECT_NEAR(area, (0.08 + (7.0 / 32 + std::log(4.0 / 3)) / (7.0 / 12)) / 2, 0.01);
  EXPECT_NEAR(left, 0.5, 0.01);
}

TEST(RandCropImage, TakesTheWholeWhenToldTo) {
  const RandCropImage crop{.size = {4, 4}, .scale = {1, 1}, .ratio = {1, 1}};
  Image image = numbered(4, 4);
  Random random(3);
  crop(image, random);
  EXPECT_EQ(image, numbered(4, 4));
}

TEST(RandFlipImage, FlipsHalfOfThem) {
  Random random(4);
  int flipped = 0;
  for (int i = 0; i < 1000; ++i) {
    Image image = numbered(3, 1);
    RandFlipImage{}(image, random);
    if (numbers(image) == Numbers{2, 1, 0}) ++flipped;
  }
  EXPECT_NEAR(flipped, 500, 60);
}

TEST(Flip, EveryCode) {
  const std::vector<std::pair<int, Numbers>> cases{
      {1, {2, 1, 0, 5, 4, 3}}, {0, {3, 4, 5, 0, 1, 2}}, {-1, {5, 4, 3, 2, 1, 0}}};
  for (const auto& [code, expected] : cases) {
    Image image = numbered(3, 2);
    flip(image, code);
    EXPECT_EQ(numbers(image), expected) << code;
    EXPECT_EQ(image.pixels[1], image.pixels[0] + 50) << "the channels of a pixel stay in order";
  }
}

TEST(ResizeImage, ALineIsNotBlownUp) {
  const ResizeImage resize{.resize_short = 256};
  EXPECT_THROW(resize.target({1, 400000}), ImageError);
  EXPECT_THROW(resize.target({1 << 26, 1}), ImageError);
  EXPECT_EQ(resize.target({10, 2000}), (Size{256, 51200}));
}

TEST(ResizeImage, TheShorterSideDecides) {
  const ResizeImage resize{.resize_short = 256};
  EXPECT_EQ(resize.target({500, 375}), (Size{341, 256}));
  EXPECT_EQ(resize.target({375, 500}), (Size{256, 341}));
  EXPECT_EQ(resize.target({256, 1}), (Size{65536, 256}));
  EXPECT_EQ((ResizeImage{.resize_short = 5}.target({10, 25})), (Size{5, 12}));  // 12.5: to even, as Python rounds
  EXPECT_EQ((ResizeImage{.size = {30, 20}}.target({10, 25})), (Size{30, 20}));
  Image image = noise(50, 40);
  Random random(0);
  ResizeImage{.resize_short = 20}(image, random);
  EXPECT_EQ(image.size(), (Size{25, 20}));
}

TEST(CropImage, TakesTheMiddle) {
  Image image = numbered(5, 4);
  Random random(0);
  CropImage{.size = {2, 2}}(image, random);
  EXPECT_EQ(numbers(image), (Numbers{6, 7, 11, 12}));
}

TEST(CropImage, ATooSmallPictureIsAnErrorWithBothSizes) {
  Image image = numbered(5, 4);
  Random random(0);
  try {
    CropImage{.size = {5, 6}}(image, random);
    FAIL();
  } catch (const ImageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("5x4 pixels: smaller than the crop of 5x6"));
  }
  EXPECT_THROW((RandomCropImage{.size = {6, 1}}(image, random)), ImageError);
}

TEST(RandomCropImage, ReachesEveryPlace) {
  Random random(5);
  std::vector<bool> seen(9);
  for (int i = 0; i < 300; ++i) {
    Image image = numbered(3, 3);
    RandomCropImage{.size = {1, 1}}(image, random);
    seen.at(image.pixels[0]) = true;
  }
  EXPECT_EQ(seen, std::vector<bool>(9, true));
}

TEST(PadImage, AddsABorder) {
  Image image = numbered(1, 1);
  Random random(0);
  PadImage{.left = 1, .bottom = 1, .fill = {7, 8, 9}}(image, random);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{7, 8, 9, 0, 50, 100, 7, 8, 9, 7, 8, 9}));
}

TEST(DecodeImage, WithoutRgbBlueIsFirst) {
  Image image = numbered(1, 1);
  Random random(0);
  DecodeImage{.to_rgb = false}(image, random);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{100, 50, 0}));
}

TEST(Normalize, IsTheFormulaChannelAfterChannel) {
  const Image image = noise(13, 7);
  const NormalizeImage options;
  std::vector<float> out(13 * 7 * 3);
  normalize(image, options, out.data());
  for (size_t i = 0; i < 13 * 7; ++i)
    for (size_t c = 0; c < kChannels; ++c) {
      const float expected = (image.pixels[3 * i + c] * (1.0F / 255.0F) - options.mean[c]) / options.std[c];
      ASSERT_EQ(out[c * 13 * 7 + i], expected);
    }
}

TEST(Normalize, AFourthChannelIsZero) {
  std::vector<float> out(16, 1.0F);
  normalize(noise(2, 2), {.channel_num = 4}, out.data());
  for (size_t i = 12; i < 16; ++i) EXPECT_EQ(out[i], 0.0F);
  EXPECT_NE(out[11], 1.0F);
}

struct Erased {
  size_t count = 0;
  bool rectangle = true;
};

/// What RandomErasing changed in planes full of 9.
Erased erased_by(const RandomErasing& erasing, Size size, uint64_t seed) {
  const auto width = static_cast<size_t>(size.width), plane = width * static_cast<size_t>(size.height);
  std::vector<float> chw(plane * 3, 9.0F);
  Random random(seed);
  erasing(chw.data(), size, random);
  size_t left = width, right = 0, top = plane, bottom = 0;
  Erased erased;
  for (size_t i = 0; i < plane; ++i) {
    EXPECT_EQ(chw[i] == 9.0F, chw[plane + i] == 9.0F);
    if (chw[i] == 9.0F) continue;
    ++erased.count;
    left = std::min(left, i % width), right = std::max(right, i % width + 1);
    top = std::min(top, i / width), bottom = std::max(bottom, i / width + 1);
  }
  erased.rectangle = erased.count == 0 || erased.count == (right - left) * (bottom - top);
  return erased;
}

TEST(RandomErasing, OverwritesARectangleOfTheRightSize) {
  int touched = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Erased erased =
        erased_by({.EPSILON = 0.25, .sh = 1.0 / 3, .attempt = 10, .use_log_aspect = true}, {50, 40}, seed);
    ASSERT_TRUE(erased.rectangle);
    ASSERT_LT(erased.count, 2000 * 0.36);
    if (erased.count > 0) {
      ++touched;
      ASSERT_GT(erased.count, 2000 * 0.015);
    }
  }
  EXPECT_NEAR(touched, 100, 40);
}

TEST(RandomErasing, NeverAndWithEveryMode) {
  EXPECT_EQ(erased_by({.EPSILON = 0}, {50, 40}, 1).count, 0u);
  for (const ErasePixels mode : {ErasePixels::constant, ErasePixels::random, ErasePixels::pixel}) {
    const Erased erased = erased_by({.EPSILON = 1, .mode = mode}, {50, 40}, 1);
    EXPECT_GT(erased.count, 0u);
    EXPECT_TRUE(erased.rectangle);
  }
}

TEST(RandomErasing, ARectangleThatNeverFitsLeavesThePicture) {
  EXPECT_EQ(erased_by({.EPSILON = 1, .sl = 1, .sh = 1, .r1 = 1}, {50, 40}, 1).count, 0u);
}

TEST(RandomErasing, NoiseIsNormal) {
  std::vector<float> chw(3 * 100 * 100, 9.0F);
  Random random(1);
  RandomErasing{.EPSILON = 1, .sl = 0.4, .mode = ErasePixels::pixel}(chw.data(), {100, 100}, random);
  double sum = 0, squares = 0, count = 0;
  for (const float x : chw)
    if (x != 9.0F) sum += x, squares += x * x, ++count;
  EXPECT_GT(count, 3000);
  EXPECT_NEAR(sum / count, 0, 0.05);
  EXPECT_NEAR(squares / count, 1, 0.05);
}

}  // namespace
}  // namespace trireme::image
