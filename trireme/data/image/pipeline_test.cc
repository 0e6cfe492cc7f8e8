#include "trireme/data/image/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "trireme/core/test_support.h"
#include "trireme/core/test_variable.h"
#include "trireme/data/image/partial.h"
#include "trireme/data/image/test_images.h"

namespace trireme::image {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

const NormalizeImage kPlain{.scale = 1, .mean = {0, 0, 0}, .std = {1, 1, 1}};

Floats run(const Transforms& transforms, const std::string& bytes, uint64_t seed = 1) {
  Floats numbers(transforms.elements(), -1000.0F);
  Random random(seed);
  transforms.run(bytes, random, numbers.data());
  return numbers;
}

Transforms training(Decoding decoding, ResizeMethod method = {}, Size size = {32, 24}) {
  return Transforms(
      {DecodeImage{}, RandCropImage{.size = size, .method = method}, RandFlipImage{}, kPlain, ToCHWImage{}},
      {.decoding = decoding});
}

Transforms evaluation(Decoding decoding, ResizeMethod method = {}) {
  return Transforms(
      {DecodeImage{}, ResizeImage{.resize_short = 40, .method = method}, CropImage{.size = {32, 28}}, kPlain},
      {.decoding = decoding});
}

double mean_distance(const Floats& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

double most_distance(const Floats& a, const Floats& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
  return most;
}

TEST(Transforms, IsItsOperatorsOneAfterTheOther) {
  const Image image = noise(50, 40);
  Image by_hand = image;
  Random random(5);
  RandCropImage{.size = {32, 24}}(by_hand, random);
  RandFlipImage{}(by_hand, random);
  Floats expected(32 * 24 * 3);
  normalize(by_hand, kPlain, expected.data());
  EXPECT_EQ(run(training(Decoding::automatic), png_of(image), 5), expected);

  Image used_up = image;
  Floats got(32 * 24 * 3);
  Random again(5);
  training(Decoding::automatic).run(used_up, again, got.data());
  EXPECT_EQ(got, expected);
}

TEST(Transforms, DecodingOnlyTheCropChangesNothing) {
  const ResizeMethod methods[] = {{},
                                  {Interpolation::bicubic, Backend::pil},
                                  {Interpolation::bicubic, Backend::cv2},
                                  {Interpolation::nearest, Backend::cv2}};
  for (const auto& options : {JpegOptions{}, JpegOptions{.sampling = 1}, JpegOptions{.progressive = true},
                              JpegOptions{.grey = true}, JpegOptions{.cmyk = true}, JpegOptions{.orientation = 6}}) {
    const std::string bytes = jpeg_of(noise(211, 160), options);
    for (const ResizeMethod& method : methods) {
      for (uint64_t seed = 0; seed < 8; ++seed)
        ASSERT_EQ(run(training(Decoding::region, method), bytes, seed),
                  run(training(Decoding::full, method), bytes, seed));
      ASSERT_EQ(run(evaluation(Decoding::region, method), bytes), run(evaluation(Decoding::full, method), bytes));
      ASSERT_EQ(run(evaluation(Decoding::automatic, method), bytes), run(evaluation(Decoding::full, method), bytes));
    }
  }
}

TEST(Transforms, ScaledDecodingIsNearOnSmoothPictures) {
  const std::string bytes = jpeg_of(waves(800, 600), {.quality = 97, .sampling = 1});
  for (const ResizeMethod method : {ResizeMethod{}, ResizeMethod{Interpolation::bicubic, Backend::pil}})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Floats full = run(training(Decoding::full, method, {100, 90}), bytes, seed);
      const Floats scaled = run(training(Decoding::automatic, method, {100, 90}), bytes, seed);
      EXPECT_LT(mean_distance(full, scaled), 2.0) << seed;
      EXPECT_LT(most_distance(full, scaled), 40.0) << seed;  // at the tips of the waves
    }
  EXPECT_LT(mean_distance(run(evaluation(Decoding::scaled), bytes), run(evaluation(Decoding::full), bytes)), 4.0);
}

TEST(Transforms, ScaledDecodingIsUsedWhereItPays) {
  const ResizedPart crop{.part = {0, 0, 448, 500}, .size = {224, 224}, .window = {0, 0, 224, 224}};
  EXPECT_EQ(best_denominator(crop), 2);
  EXPECT_EQ(best_denominator({.part = {0, 0, 447, 500}, .size = {224, 224}}), 1);
  EXPECT_EQ(best_denominator({.part = {0, 0, 1792, 5000}, .size = {224, 224}}), 8);
  const std::string bytes = jpeg_of(noise(400, 300));
  int different = 0;
  for (uint64_t seed = 0; seed < 10; ++seed)
    if (run(training(Decoding::automatic), bytes, seed) != run(training(Decoding::region), bytes, seed)) ++different;
  EXPECT_GE(different, 5);
  EXPECT_EQ(run(evaluation(Decoding::automatic), bytes), run(evaluation(Decoding::region), bytes));
  EXPECT_NE(run(evaluation(Decoding::scaled), bytes), run(evaluation(Decoding::region), bytes));
}

TEST(Transforms, ScaledDecodingIsSwitchedOffByAVariable) {
  const std::string bytes = jpeg_of(noise(400, 300));
  const ScopedVariable variable("TRIREME_WITHOUT", "scaled_jpeg");
  for (uint64_t seed = 0; seed < 10; ++seed)
    EXPECT_EQ(run(training(Decoding::automatic), bytes, seed), run(training(Decoding::region), bytes, seed));
}

TEST(Transforms, ABadPictureIsAnErrorAndTheNextOneWorks) {
  const Transforms transforms = training(Decoding::automatic);
  const std::string good = jpeg_of(noise(100, 80));
  const Floats expected = run(transforms, good);
  EXPECT_THROW(run(transforms, good.substr(0, good.size() / 2)), ImageError);
  EXPECT_THROW(run(transforms, good.substr(0, good.size() - 4)), ImageError);
  EXPECT_THROW(run(transforms, "nothing"), ImageError);
  EXPECT_EQ(run(transforms, good), expected);
}

TEST(Transforms, ManyThreadsShareOne) {
  const Transforms transforms({RandCropImage{.size = {32, 32}}, RandFlipImage{}, TimmAutoAugment{}, NormalizeImage{},
                               RandomErasing{.mode = ErasePixels::pixel}});
  const std::string bytes = jpeg_of(noise(100, 80));
  std::vector<Floats> expected, got(8);
  for (uint64_t seed = 0; seed < got.size(); ++seed) expected.push_back(run(transforms, bytes, seed));
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < got.size(); ++seed)
    threads.emplace_back([&, seed] { got[seed] = run(transforms, bytes, seed); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
}

TEST(Transforms, KnowsItsSize) {
  EXPECT_EQ(training(Decoding::full).width(), 32);
  EXPECT_EQ(training(Decoding::full).height(), 24);
  EXPECT_EQ(training(Decoding::full).channels(), 3);
  const Transforms padded(
      {ResizeImage{.size = {10, 20}}, PadImage{.left = 3, .top = 4}, NormalizeImage{.channel_num = 4}});
  EXPECT_EQ(padded.width(), 13);
  EXPECT_EQ(padded.height(), 24);
  EXPECT_EQ(padded.elements(), 13u * 24 * 4);
  EXPECT_EQ(run(padded, png_of(noise(5, 5))).back(), 0.0F);
}

TEST(Transforms, AnotherSizeForEveryBatch) {
  const Transforms small = training(Decoding::automatic).resized({16, 20});
  EXPECT_EQ(small.width(), 16);
  EXPECT_EQ(small.height(), 20);
  EXPECT_EQ(run(small, png_of(noise(50, 40))).size(), 16u * 20 * 3);
  EXPECT_THROW(evaluation(Decoding::full).resized({16, 16}), UsageError);
}

TEST(Transforms, BlueFirstWhenAsked) {
  const std::string bytes = jpeg_of(noise(60, 50));
  const TransformsOptions equal{.decoding = Decoding::region};
  const Floats rgb = run(Transforms({DecodeImage{}, RandCropImage{.size = {8, 8}}, kPlain}, equal), bytes);
  const Floats bgr =
      run(Transforms({DecodeImage{.to_rgb = false}, RandCropImage{.size = {8, 8}}, kPlain}, equal), bytes);
  EXPECT_TRUE(std::equal(rgb.begin(), rgb.begin() + 64, bgr.begin() + 128));
}

std::string refusal(std::vector<Operator> operators) {
  return trireme::refusal([&] { const Transforms transforms(std::move(operators)); });
}

TEST(Transforms, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal({RandCropImage{}}), HasSubstr("no NormalizeImage"));
  EXPECT_THAT(refusal({NormalizeImage{}}), HasSubstr("as large as each picture"));
  EXPECT_THAT(refusal({ResizeImage{.resize_short = 9}, NormalizeImage{}}), HasSubstr("as large as each picture"));
  EXPECT_THAT(refusal({RandCropImage{}, NormalizeImage{}, NormalizeImage{}}), HasSubstr("twice"));
  EXPECT_THAT(refusal({RandCropImage{}, NormalizeImage{}, RandFlipImage{}}),
              HasSubstr("RandFlipImage cannot follow NormalizeImage"));
  EXPECT_THAT(refusal({RandCropImage{}, RandomErasing{}, NormalizeImage{}}), HasSubstr("must follow NormalizeImage"));
  EXPECT_THAT(refusal({RandCropImage{}, DecodeImage{}, NormalizeImage{}}), HasSubstr("DecodeImage must be the first"));
}

TEST(Transforms, RefusesOptionsOutOfRange) {
  const std::vector<std::pair<Operator, std::string>> cases{
      {RandCropImage{.size = {0, 5}}, "size of 0x5"},
      {RandCropImage{.scale = {1, 0.5}}, "RandCropImage.scale: [1, 0.5]"},
      {RandCropImage{.ratio = {0, 1}}, "RandCropImage.ratio: [0, 1]"},
      {RandFlipImage{.flip_code = 2}, "flip_code: 2"},
      {ResizeImage{}, "ResizeImage without resize_short"},
      {PadImage{.left = -1}, "PadImage"},
      {RandAugment{.magnitude = 11}, "RandAugment.magnitude"},
      {TimmAutoAugment{.config_str = "augmix-m5"}, "augmix-m5"},
      {ColorJitter{.hue = 0.6}, "ColorJitter.hue"},
      {NormalizeImage{.std = {1, 0, 1}}, "NormalizeImage.std"},
      {NormalizeImage{.channel_num = 5}, "channel_num: 5"},
      {RandomErasing{.sl = 0.5, .sh = 0.1}, "sl 0.5, sh 0.1"},
  };
  for (const auto& [op, part] : cases) EXPECT_THAT(refusal({op}), HasSubstr(part));
}

TEST(Transforms, NamesItsOperators) {
  EXPECT_EQ(name_of(RandCropImage{}), "RandCropImage");
  EXPECT_EQ(name_of(ToCHWImage{}), "ToCHWImage");
  EXPECT_EQ(name_of(RandomRotation{}), "RandomRotation");
}

}  // namespace
}  // namespace trireme::image
