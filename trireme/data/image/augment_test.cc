#include "trireme/data/image/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "trireme/core/error.h"
#include "trireme/data/image/affine.h"
#include "trireme/data/image/photometric.h"
#include "trireme/data/image/test_images.h"

namespace trireme::image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> after(const std::vector<int>& values, const std::function<void(Image&)>& change) {
  Image image = grey_row(values);
  change(image);
  std::vector<int> out;
  for (size_t i = 0; i < image.pixels.size(); i += kChannels) out.push_back(image.pixels[i]);
  return out;
}

TEST(Photometric, TablesByHand) {
  EXPECT_THAT(after({0, 100, 255}, invert), ElementsAre(255, 155, 0));
  EXPECT_THAT(after({0x7F, 0xFF, 0x1F}, [](Image& i) { posterize(i, 3); }), ElementsAre(0x60, 0xE0, 0));
  EXPECT_THAT(after({200}, [](Image& i) { posterize(i, 0); }), ElementsAre(0));
  EXPECT_THAT(after({200}, [](Image& i) { posterize(i, 8); }), ElementsAre(200));
  EXPECT_THAT(after({99, 100, 101}, [](Image& i) { solarize(i, 100); }), ElementsAre(99, 155, 154));
  EXPECT_THAT(after({0, 127, 128}, [](Image& i) { solarize_add(i, 200); }), ElementsAre(200, 255, 128));
}

TEST(Photometric, AutoContrastStretchesEachChannel) {
  EXPECT_THAT(after({50, 100, 150}, auto_contrast), ElementsAre(0, 127, 255));
  EXPECT_THAT(after({70, 70}, auto_contrast), ElementsAre(70, 70));
}

TEST(Photometric, EqualizeSpreadsTheValues) {
  std::vector<int> values;
  for (int i = 0; i < 512; ++i) values.push_back(i / 2 % 128);
  const std::vector<int> spread = after(values, equalize);
  EXPECT_GT(spread[255], 200);  // the highest value, 127 before
  EXPECT_EQ(spread[0], 0);
  EXPECT_THAT(after({3, 3, 3}, equalize), ElementsAre(3, 3, 3));
}

TEST(Photometric, EnhancementsMoveAwayFromTheWeakVersion) {
  EXPECT_THAT(after({100, 200}, [](Image& i) { enhance_brightness(i, 0.5); }), ElementsAre(50, 100));
  EXPECT_THAT(after({100, 200}, [](Image& i) { enhance_brightness(i, 1.5); }), ElementsAre(150, 255));
  EXPECT_THAT(after({100, 200}, [](Image& i) { enhance_contrast(i, 0); }), ElementsAre(150, 150));
  EXPECT_THAT(after({100, 200}, [](Image& i) { enhance_contrast(i, 2); }), ElementsAre(50, 250));
  for (const auto& enhance : {enhance_color, enhance_contrast, enhance_brightness, enhance_sharpness}) {
    Image image = noise(9, 9);
    enhance(image, 1);
    EXPECT_EQ(image, noise(9, 9));
  }
}

TEST(Photometric, ColourWithoutColourIsGrey) {
  Image image;
  image.reshape(1, 1);
  image.pixels = {200, 100, 50};
  enhance_color(image, 0);
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{124, 124, 124}));  // 0.299·200 + 0.587·100 + 0.114·50 = 124.2
}

TEST(Photometric, SharpnessZeroSmoothsTheMiddleAndLeavesTheBorder) {
  Image image;
  image.reshape(3, 3);
  image.row(1)[3] = 130;  // red of the middle pixel
  enhance_sharpness(image, 0);
  EXPECT_EQ(image.row(1)[3], 50);  // 5/13
  EXPECT_EQ(image.row(0)[3], 0);
}

TEST(Photometric, HueGoesRound) {
  Image image;
  image.reshape(1, 1);
  image.pixels = {255, 0, 0};
  shift_hue(image, 1.0 / 3);  // red to green
  EXPECT_LT(image.pixels[0], 10);
  EXPECT_EQ(image.pixels[1], 255);
  Image grey = grey_row({9, 100});
  shift_hue(grey, 0.3);
  EXPECT_EQ(grey, grey_row({9, 100}));
}

TEST(Affine, ShiftsAndFills) {
  const AffineOptions fill{.fill = {7, 7, 7}};
  EXPECT_THAT(after({1, 2, 3, 4}, [&](Image& i) { affine(i, {.x0 = 1}, fill); }), ElementsAre(2, 3, 4, 7));
  EXPECT_THAT(after({1, 2, 3, 4}, [&](Image& i) { affine(i, {.x0 = -2}, fill); }), ElementsAre(7, 7, 1, 2));
  const AffineOptions smooth{.interpolation = Interpolation::bilinear, .fill = {7, 7, 7}};
  EXPECT_THAT(after({0, 10, 20, 30}, [&](Image& i) { affine(i, {.x0 = 0.5}, smooth); }), ElementsAre(5, 15, 25, 7));
}

TEST(Affine, NoChangeIsNoChange) {
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
    Image image = noise(12, 9);
    affine(image, {}, {.interpolation = interpolation});
    EXPECT_EQ(image, noise(12, 9));
  }
}

TEST(Affine, AQuarterTurnAgainstTheClock) {
  Image image;
  image.reshape(2, 2);
  image.pixels = {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4};
  rotate(image, 90, {});
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{2, 2, 2, 4, 4, 4, 1, 1, 1, 3, 3, 3}));
}

/// How often an augmentation changes a picture, and that it keeps its size and depends on its seed alone.
template <typename Augment>
double share_changed(const Augment& augment, int tries = 300) {
  int changed = 0;
  const Image original = waves(32, 24);
  for (int i = 0; i < tries; ++i) {
    Image first = original, second = original;
    Random a(static_cast<uint64_t>(i)), b(static_cast<uint64_t>(i));
    augment(first, a);
    augment(second, b);
    EXPECT_EQ(first, second);
    EXPECT_EQ(first.size(), original.size());
    if (first != original) ++changed;
  }
  return static_cast<double>(changed) / tries;
}

TEST(Augment, ChangeMostPicturesAndDependOnTheSeedAlone) {
  EXPECT_GT(share_changed(AutoAugment{}), 0.6);
  EXPECT_GT(share_changed(RandAugment{}), 0.9);
  EXPECT_EQ(share_changed(RandAugment{.num_layers = 0}), 0);
  const double timm = share_changed(TimmAutoAugment{.config_str = "rand-m7-mstd0.5-inc1"});
  EXPECT_NEAR(timm, 0.75 - 0.03, 0.1);  // two operations, each half the time; few of them change nothing
  EXPECT_EQ(share_changed(TimmAutoAugment{.prob = 0}), 0);
  EXPECT_GT(share_changed(ColorJitter{.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1}), 0.9);
  EXPECT_EQ(share_changed(ColorJitter{}), 0);
  EXPECT_GT(share_changed(RandomRotation{.degrees = 30}), 0.9);
  EXPECT_EQ(share_changed(RandomRotation{.degrees = 0}), 0);
}

TEST(Augment, RandAugmentWithOneLayerUsesAllItsOperations) {
  std::set<std::string> results;
  Random random(1);
  for (int i = 0; i < 400; ++i) {
    Image image = waves(16, 12);
    RandAugment{.num_layers = 1}(image, random);
    results.insert(std::string(image.pixels.begin(), image.pixels.end()));
  }
  // Fourteen operations, eight of them with a sign, less those that leave these waves as they are.
  EXPECT_GE(results.size(), 18u);
  EXPECT_LE(results.size(), 22u);
}

TEST(TimmAutoAugment, WeightsChooseWithoutRepetition) {
  const TimmAutoAugment all{.config_str = "rand-w0-n20"};  // more layers than operations with a weight
  EXPECT_GT(share_changed(all, 50), 0.9);
}

TEST(TimmAutoAugment, StrongMagnitudesAreCutAtTen) {
  Random a(3), b(3);
  Image first = waves(32, 24), second = waves(32, 24);
  for (int i = 0; i < 20; ++i) {
    TimmAutoAugment{.config_str = "rand-m15-inc1"}(first, a);
    TimmAutoAugment{.config_str = "rand-m10-inc1"}(second, b);
  }
  EXPECT_EQ(first, second);
}

TEST(TimmAutoAugment, AConfigThatCannotBeReadIsNamed) {
  EXPECT_NO_THROW(TimmAutoAugment{.config_str = "rand-m9-n3-mstd0.5-w0-inc1"}.check());
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{{"original-mstd0.5", "rand-"},
                                                                                   {"", "rand-"},
                                                                                   {"rand-m", "'m'"},
                                                                                   {"rand-x3", "'x3'"},
                                                                                   {"rand-m7x", "'m7x'"},
                                                                                   {"rand-w1", "'w1'"}}) {
    try {
      TimmAutoAugment{.config_str = text}.check();
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace trireme::image
