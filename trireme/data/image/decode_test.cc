#include "trireme/data/image/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "trireme/core/test_support.h"
#include "trireme/data/image/jpeg.h"
#include "trireme/data/image/orient.h"
#include "trireme/data/image/random.h"
#include "trireme/data/image/test_images.h"

namespace trireme::image {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::string& bytes, const DecodeOptions& options = {}) {
  return trireme::refusal<ImageError>([&] { decode(bytes, options); });
}

/// The largest difference of two pictures of one size.
int distance(const Image& a, const Image& b) {
  if (a.size() != b.size()) return 256;
  int most = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) most = std::max(most, std::abs(a.pixels[i] - b.pixels[i]));
  return most;
}

Image part_of(const Image& image, const Region& region) {
  Image out;
  out.reshape(region.width, region.height);
  const View view = view_of(image, region);
  for (int y = 0; y < region.height; ++y) std::copy_n(view.row(y), out.stride(), out.row(y));
  return out;
}

TEST(DecodeJpeg, WavesComeBackNearly) {
  const Image image = waves(123, 77);
  EXPECT_LE(distance(decode(jpeg_of(image, {.quality = 98, .sampling = 1})), image), 8);
  EXPECT_LE(distance(decode(jpeg_of(image, {.quality = 98, .sampling = 1, .progressive = true})), image), 8);
}

TEST(DecodeJpeg, GreyBecomesThreeEqualChannels) {
  const Image image = decode(jpeg_of(waves(40, 30), {.quality = 98, .grey = true}));
  const Image source = waves(40, 30);
  for (size_t i = 0; i < image.pixels.size(); i += kChannels) {
    ASSERT_EQ(image.pixels[i], image.pixels[i + 1]);
    ASSERT_EQ(image.pixels[i], image.pixels[i + 2]);
    ASSERT_NEAR(image.pixels[i], source.pixels[i], 8);
  }
}

TEST(DecodeJpeg, CmykIsInvertedAsAdobeStoresIt) {
  // Black is 255, so what remains are cyan, magenta and yellow, stored inverted: red, green and blue.
  const Image image = decode(jpeg_of(waves(40, 30), {.quality = 99, .cmyk = true}));
  EXPECT_LE(distance(image, waves(40, 30)), 8);
}

TEST(DecodeJpeg, IsTurnedAsExifSays) {
  // A picture of two pixels' worth of difference in every corner: 1 red left upper, as the standard's table has it.
  Image upright;
  upright.reshape(32, 16);
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 32; ++x) {
      uint8_t* pixel = upright.row(y) + x * kChannels;
      pixel[0] = x < 16 ? 250 : 5;
      pixel[1] = y < 8 ? 250 : 5;
      pixel[2] = 128;
    }
  const std::vector<std::array<bool, 2>> left_upper{{true, true}, {false, true}, {false, false}, {true, false},
                                                    {true, true}, {true, false}, {false, false}, {false, true}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string bytes = jpeg_of(upright, {.quality = 95, .sampling = 1, .orientation = orientation});
    const Image image = decode(bytes);
    const Size expected = orientation < 5 ? Size{32, 16} : Size{16, 32};
    EXPECT_EQ(image.size(), expected) << orientation;
    EXPECT_EQ(read_size(bytes), expected) << orientation;
    const auto& corner = left_upper[static_cast<size_t>(orientation - 1)];
    EXPECT_EQ(image.pixels[0] > 128, corner[0]) << orientation;
    EXPECT_EQ(image.pixels[1] > 128, corner[1]) << orientation;
  }
}

TEST(DecodeJpeg, ExifThatSaysNothingOrNonsenseTurnsNothing) {
  const std::string good = exif_of(6);
  const auto parse = [](const std::string& text) {
    return parse_orientation({reinterpret_cast<const unsigned char*>(text.data()), text.size()});
  };
  EXPECT_EQ(parse(good), 6);
  EXPECT_EQ(parse(exif_of(9)), 1);
  EXPECT_EQ(parse(exif_of(0)), 1);
  EXPECT_EQ(parse(""), 1);
  EXPECT_EQ(parse("http://ns.adobe.com/xap/1.0/"), 1);
  for (size_t length = 0; length < 24; ++length) EXPECT_EQ(parse(good.substr(0, length)), 1) << length;
  std::string far = good;
  far[10] = '\x7f';  // the directory lies beyond the end
  EXPECT_EQ(parse(far), 1);
}

TEST(DecodeJpeg, CutAnywhereIsAnError) {
  for (const bool progressive : {false, true}) {
    const std::string bytes = jpeg_of(noise(64, 48), {.progressive = progressive});
    for (size_t length = 1; length < bytes.size(); length += length < 40 ? 1 : 97)
      EXPECT_NE(message_of(bytes.substr(0, length)), "nothing was thrown") << length;
    EXPECT_NE(message_of(bytes.substr(0, bytes.size() - 1)), "nothing was thrown");
    EXPECT_NE(message_of(bytes.substr(0, bytes.size() - 2)), "nothing was thrown");
    EXPECT_EQ(message_of(bytes), "nothing was thrown");
  }
}

TEST(DecodeJpeg, DamagedDataIsAnErrorAndSaysWhich) {
  std::string bytes = jpeg_of(noise(64, 48), {.restart = 2});
  bytes[bytes.size() / 2] = '\xff';
  bytes[bytes.size() / 2 + 1] = '\xd9';  // an end in the middle
  EXPECT_THAT(message_of(bytes), HasSubstr("damaged JPEG: "));
}

TEST(DecodeJpeg, StrayBytesBeforeTheEndPassInSilence) {
  std::string bytes = jpeg_of(waves(64, 48));
  bytes.insert(bytes.size() - 2, 5, '\0');
  testing::internal::CaptureStderr();
  EXPECT_EQ(message_of(bytes), "nothing was thrown");
  EXPECT_NE(message_of(bytes.substr(0, 300)), "nothing was thrown");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(DecodeJpeg, WhatFollowsTheEndDoesNotMatter) {
  const std::string bytes = jpeg_of(waves(64, 48));
  EXPECT_EQ(decode(bytes + std::string(1000, 'x')), decode(bytes));
}

/// The second scan again and again: passes over the picture that set the same coefficients.
std::string with_scans(int width, int height, int more) {
  std::string bytes = jpeg_of(waves(width, height), {.progressive = true, .grey = true});
  const size_t scan = bytes.find("\xff\xda", bytes.find("\xff\xda") + 2), end = bytes.find("\xff\xc4", scan);
  const std::string again = bytes.substr(scan, end - scan);
  std::string many;
  for (int i = 0; i < more; ++i) many += again;
  return bytes.insert(end, many);
}

TEST(DecodeJpeg, TooManyScansAreRefused) {
  EXPECT_EQ(message_of(with_scans(16, 16, 700)),
            "JPEG of 16x16 pixels with more than 500 scans; save it again with fewer");
  EXPECT_EQ(message_of(with_scans(3000, 3000, 40)),
            "JPEG of 3000x3000 pixels with more than 32 scans; save it again with fewer");
  EXPECT_EQ(message_of(with_scans(3000, 3000, 10)), "nothing was thrown");
}

TEST(DecodeJpeg, CanBeStoppedBetweenRows) {
  for (const bool progressive : {false, true}) {
    const std::string bytes = jpeg_of(waves(300, 200), {.progressive = progressive});
    int asked = 0;
    EXPECT_EQ(message_of(bytes, {.stop = [&] { return ++asked == 5; }}), "the decoding was stopped");
    EXPECT_EQ(asked, 5);
    EXPECT_EQ(message_of(bytes, {.stop = [] { return false; }}), "nothing was thrown");
  }
}

TEST(DecodeJpeg, APartEqualsTheWhole) {
  Random random(1);
  int checked = 0;
  for (const auto& [sampling, sampling_y] : std::vector<std::array<int, 2>>{{1, 1}, {2, 2}, {2, 1}, {1, 2}})
    for (const bool progressive : {false, true}) {
      const Image image = noise(201, 133);
      const std::string bytes =
          jpeg_of(image, {.sampling = sampling, .sampling_y = sampling_y, .progressive = progressive, .restart = 7});
      for (const int denominator : {1, 2, 4, 8}) {
        const Size size{(201 + denominator - 1) / denominator, (133 + denominator - 1) / denominator};
        Image whole;
        JpegReader(bytes, {}).read({0, 0, size.width, size.height}, denominator, whole);
        if (denominator == 1) {
          ASSERT_EQ(whole, decode(bytes));
        }
        for (int i = 0; i < 12; ++i, ++checked) {
          Region wanted{.width = random.integer(1, size.width), .height = random.integer(1, size.height)};
          wanted.x = random.integer(0, size.width - wanted.width);
          wanted.y = random.integer(0, size.height - wanted.height);
          Image part;
          const Region got = JpegReader(bytes, {}).read(wanted, denominator, part);
          ASSERT_LE(got.x, wanted.x);
          ASSERT_GE(got.x + got.width, wanted.x + wanted.width);
          const Region inside{wanted.x - got.x, wanted.y - got.y, wanted.width, wanted.height};
          ASSERT_EQ(part_of(part, inside), part_of(whole, wanted))
              << sampling << 'x' << sampling_y << " 1/" << denominator << ' ' << wanted.x << ',' << wanted.y << ' '
              << wanted.width << 'x' << wanted.height;
        }
      }
    }
  EXPECT_EQ(checked, 4 * 2 * 4 * 12);
}

TEST(DecodeJpeg, APartOfRareSamplingIsReadAsAWhole) {
  const std::string bytes = jpeg_of(noise(64, 48), {.sampling = 4, .sampling_y = 1});
  Image part;
  EXPECT_EQ(JpegReader(bytes, {}).read({20, 10, 5, 5}, 1, part), (Region{0, 0, 64, 48}));
  EXPECT_EQ(part, decode(bytes));
}

TEST(DecodeJpeg, APartOfACutFileIsAnErrorEvenWhenThePartIsThere) {
  const std::string bytes = jpeg_of(noise(64, 128));
  Image image;
  EXPECT_NO_THROW(JpegReader(bytes, {}).read({0, 0, 10, 10}, 1, image));
  const std::string cut = bytes.substr(0, bytes.size() * 9 / 10);
  EXPECT_THROW(JpegReader(cut, {}).read({0, 0, 10, 10}, 1, image), ImageError);
}

TEST(DecodePng, ComesBackAsItWas) {
  const Image image = noise(37, 21);
  EXPECT_EQ(decode(png_of(image)), image);
  EXPECT_EQ(read_size(png_of(image)), (Size{37, 21}));
}

TEST(DecodePng, KeepsTheHighByteOf16Bits) {
  const std::vector<uint8_t> grey{0x12, 0xFF, 0x80, 0x00};
  const Image image = decode(png_of(2, 1, grey, {.bit_depth = 16, .color_type = SPNG_COLOR_TYPE_GRAYSCALE}));
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{0x12, 0x12, 0x12, 0x80, 0x80, 0x80}));
}

TEST(DecodePng, OneBitIsBlackAndWhite) {
  const Image image = decode(png_of(3, 1, {0b10100000}, {.bit_depth = 1, .color_type = SPNG_COLOR_TYPE_GRAYSCALE}));
  EXPECT_EQ(image.pixels, (std::vector<uint8_t>{255, 255, 255, 0, 0, 0, 255, 255, 255}));
}

TEST(DecodePng, LooksUpPalettes) {
  const PngOptions options{.color_type = SPNG_COLOR_TYPE_INDEXED, .palette = {1, 2, 3, 40, 50, 60}};
  EXPECT_EQ(decode(png_of(2, 1, {1, 0}, options)).pixels, (std::vector<uint8_t>{40, 50, 60, 1, 2, 3}));
}

TEST(DecodePng, DropsTransparency) {
  const PngOptions options{.color_type = SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
  EXPECT_EQ(decode(png_of(1, 1, {9, 8, 7, 0}, options)).pixels, (std::vector<uint8_t>{9, 8, 7}));
}

TEST(DecodePng, AWrongChecksumIsAnError) {
  const std::string bytes = png_of(noise(20, 20));
  for (size_t i = 12; i < bytes.size() - 12; i += 13) {
    std::string wrong = bytes;
    wrong[i] = static_cast<char>(wrong[i] ^ 0x10);
    EXPECT_NE(message_of(wrong), "nothing was thrown") << i;
  }
}

TEST(DecodePng, CutAnywhereIsAnError) {
  const std::string bytes = png_of(noise(20, 20));
  for (size_t length = 1; length < bytes.size(); length += 11)
    EXPECT_NE(message_of(bytes.substr(0, length)), "nothing was thrown") << length;
  EXPECT_THAT(message_of(bytes.substr(0, 200)), HasSubstr("damaged PNG"));
}

TEST(DecodePng, TextsTakeLittleMemory) {
  EXPECT_EQ(message_of(png_of(1, 1, {1, 2, 3}, {.text = std::string(1000, 'x')})), "nothing was thrown");
  EXPECT_EQ(message_of(png_of(1, 1, {1, 2, 3}, {.text = std::string(2 << 20, 'x')})),
            "PNG with more than 1048576 bytes of texts, colour profiles and EXIF; save it without them");
}

TEST(Decode, WhatIsNoImageIsNamed) {
  EXPECT_EQ(message_of(""), "no image: 0 bytes");
  EXPECT_THAT(message_of("hello world"), HasSubstr("11 bytes that begin with 68656c6c6f20776f"));
  EXPECT_THAT(message_of("GIF89a"), HasSubstr("a GIF; only JPEG and PNG"));
  EXPECT_THAT(message_of("RIFF....WEBPVP8 "), HasSubstr("a WebP; only JPEG and PNG"));
  EXPECT_THAT(message_of("RIFF....WAVEfmt "), HasSubstr("no image"));
  using namespace std::string_literals;
  EXPECT_THAT(message_of("\0\0\0\x20"s
                         "ftypavif...."),
              HasSubstr("an AVIF; only JPEG and PNG"));
  EXPECT_THAT(message_of("\0\0\0\x20"s
                         "ftypheic...."),
              HasSubstr("a HEIC; only JPEG and PNG"));
  EXPECT_THAT(message_of("\0\0\0\x20"s
                         "ftypmp42...."),
              HasSubstr("no image"));
  EXPECT_THAT(message_of("II+\0\x08\0\0\0"s), HasSubstr("a BigTIFF; only JPEG and PNG"));
  EXPECT_THAT(message_of("MM\0+\0\x08\0\0"s), HasSubstr("a BigTIFF; only JPEG and PNG"));
  EXPECT_THAT(message_of("\xff\x0a..."), HasSubstr("a JPEG XL; only JPEG and PNG"));
  EXPECT_THAT(message_of("RIFF"), HasSubstr("no image"));
  EXPECT_THAT(message_of("<!DOCTYPE html>"), HasSubstr("failed download"));
  EXPECT_THROW(read_size(std::string("BM......")), ImageError);
}

TEST(Decode, MorePixelsThanTheLimitAreRefusedByTheHeader) {
  const DecodeOptions small{.max_pixels = 99};
  EXPECT_THAT(message_of(jpeg_of(waves(10, 10)), small),
              HasSubstr("10x10 pixels: more than the limit of 99; make it smaller"));
  EXPECT_THAT(message_of(png_of(waves(10, 10)), small),
              HasSubstr("10x10 pixels: more than the limit of 99; make it smaller"));
  EXPECT_THROW(read_size(jpeg_of(waves(10, 10)), small), ImageError);
  EXPECT_EQ(message_of(png_of(waves(9, 11)), small), "nothing was thrown");

  std::string bomb = jpeg_of(waves(16, 16), {.progressive = true});
  const size_t frame = bomb.find("\xff\xc2");
  bomb.replace(frame + 5, 4, "\xff\xdc\xff\xdc");  // 65500 x 65500
  EXPECT_THAT(message_of(bomb), HasSubstr("65500x65500 pixels: more than the limit"));
}

TEST(Decode, AnImageIsUsedAgain) {
  Image image = noise(100, 100);
  const uint8_t* memory = image.pixels.data();
  decode(png_of(waves(30, 20)), image);
  EXPECT_EQ(image, waves(30, 20));
  EXPECT_EQ(image.pixels.data(), memory);
}

}  // namespace
}  // namespace trireme::image
