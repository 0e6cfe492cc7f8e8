#include "trireme/config/preprocess/make_transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/document.h"
#include "trireme/core/test_support.h"

namespace trireme::preprocess {
namespace {

using testing::HasSubstr;

std::vector<image::Operator> operators(const std::string& text) {
  const config::Node list = config::parse_document(text, "f.yaml").at("ops");
  return make_operators(config::read_named_list(list), list);
}

std::string refused_transforms(const std::string& text) {
  return refusal([&] {
    const config::Node list = config::parse_document(text, "f.yaml").at("ops");
    make_transforms(config::read_named_list(list), list);
  });
}

TEST(MakeTransforms, ReadsTheKeysOfPaddleClas) {
  const auto ops = operators(R"(
ops:
  - DecodeImage: {to_rgb: False, channel_first: False}
  - RandCropImage: {size: [160, 96], scale: [0.2, 1.0], interpolation: Bicubic, backend: PIL}
  - TimmAutoAugment: {config_str: rand-m7-mstd0.5-inc1, interpolation: bicubic, img_size: 224}
  - NormalizeImage: {scale: 1.0/255.0, mean: [0.1, 0.2, 0.3], std: [1, 2, 3], order: ''}
  - RandomErasing: {EPSILON: 0.25, sh: 1.0/3.0, attempt: 10, use_log_aspect: True, mode: pixel}
  - ToCHWImage:
)");
  ASSERT_EQ(ops.size(), 6u);
  EXPECT_FALSE(std::get<image::DecodeImage>(ops[0]).to_rgb);
  const auto& crop = std::get<image::RandCropImage>(ops[1]);
  EXPECT_EQ(crop.size, (image::Size{160, 96}));
  EXPECT_EQ(crop.scale[0], 0.2);
  EXPECT_EQ(crop.method, (image::ResizeMethod{image::Interpolation::bicubic, image::Backend::pil}));
  EXPECT_EQ(std::get<image::TimmAutoAugment>(ops[2]).config_str, "rand-m7-mstd0.5-inc1");
  EXPECT_FLOAT_EQ(std::get<image::NormalizeImage>(ops[3]).std[2], 3);
  const auto& erasing = std::get<image::RandomErasing>(ops[4]);
  EXPECT_DOUBLE_EQ(erasing.sh, 1.0 / 3.0);
  EXPECT_EQ(erasing.mode, image::ErasePixels::pixel);
  EXPECT_EQ(erasing.attempt, 10);
}

TEST(MakeTransforms, RefusesWithThePlace) {
  EXPECT_THAT(refused_transforms("ops:\n  - DecodeImage:\n  - RandCropImag: {size: 3}\n"),
              testing::AllOf(HasSubstr("f.yaml:3"), HasSubstr("did you mean 'RandCropImage'")));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {size: 3, interpolation: bicubicc}\n"),
              testing::AllOf(HasSubstr("f.yaml:2"), HasSubstr("'bicubicc' is not known"), HasSubstr("'bicubic'")));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {size: 3, backend: opencv}\n"),
              HasSubstr("expected cv2, pil"));
  EXPECT_THAT(refused_transforms("ops:\n  - RandomErasing: {mode: noise}\n"), HasSubstr("expected const, rand, pixel"));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {scale: [1, 2]}\n"), HasSubstr("size"));
  EXPECT_THAT(refused_transforms("ops:\n  - NormalizeImage: {mean: [1, 2]}\n"), HasSubstr("expected 3 numbers, got 2"));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {size: 3}\n"), HasSubstr("no NormalizeImage"));
}

}  // namespace
}  // namespace trireme::preprocess
