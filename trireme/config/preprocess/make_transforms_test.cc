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

TEST(MakeTransforms, AnImageSizeMayBeAList) {
  const auto ops = operators("ops: [TimmAutoAugment: {img_size: [224, 192]}, TimmAutoAugment: {img_size: 64}]");
  EXPECT_EQ(std::get<image::TimmAutoAugment>(ops[0]).img_size, 192);
  EXPECT_EQ(std::get<image::TimmAutoAugment>(ops[1]).img_size, 64);
  EXPECT_THAT(refused_transforms("ops: [TimmAutoAugment: {img_size: []}]"), HasSubstr("got an empty list"));
}

// With to_np False PaddleClas leaves the order of the colours as the backend has it.
TEST(MakeTransforms, ColoursAreInTheOrderOfPaddleClas) {
  const CaughtLog quiet;
  const auto to_rgb = [](const std::string& keys) {
    return std::get<image::DecodeImage>(operators("ops: [DecodeImage: {" + keys + "}]")[0]).to_rgb;
  };
  EXPECT_TRUE(to_rgb("to_rgb: True"));
  EXPECT_FALSE(to_rgb("to_rgb: False, backend: pil"));
  EXPECT_TRUE(to_rgb("to_np: False, to_rgb: False, backend: pil"));
  EXPECT_FALSE(to_rgb("to_np: False, to_rgb: True, backend: cv2"));
}

TEST(MakeTransforms, WarnsOfWhatItIgnores) {
  const auto warnings = [](const std::string& text) {
    const CaughtLog log;
    operators("ops:\n  - " + text + "\n");
    return log.lines();
  };
  EXPECT_THAT(
      warnings("DecodeImage: {backend: PIL}"),
      testing::ElementsAre(HasSubstr("f.yaml:2: ops.0.DecodeImage.backend: 'PIL' is ignored: pictures are turned")));
  EXPECT_THAT(warnings("NormalizeImage: {output_fp16: True}"),
              testing::ElementsAre(HasSubstr("output_fp16: 'True' is")));
  EXPECT_THAT(warnings("ResizeImage: {size: 3, return_numpy: False}"),
              testing::ElementsAre(HasSubstr("return_numpy: 'False' is ignored: ")));
  EXPECT_THAT(warnings("AutoAugment: {prob: 0.5, layers: 2}"),
              testing::ElementsAre(
                  "warning: f.yaml:2: ops.0.AutoAugment.prob: '0.5' is ignored: the operator has no parameters",
                  HasSubstr("ops.0.AutoAugment.layers: '2' is ignored: ")));
  EXPECT_THAT(warnings("ToCHWImage: {x: 1}"), testing::ElementsAre(HasSubstr("ToCHWImage.x: '1' is ignored: ")));
  EXPECT_THAT(warnings("NormalizeImage: {order: chw, output_fp16: False}\n  - DecodeImage: {backend: cv2}\n"
                       "  - ResizeImage: {size: 3, return_numpy: True}\n  - ToCHWImage:\n  - AutoAugment: {}"),
              testing::IsEmpty());
}

TEST(MakeTransforms, RefusesWithThePlace) {
  EXPECT_THAT(refused_transforms("ops:\n  - DecodeImage:\n  - RandCropImag: {size: 3}\n"),
              testing::AllOf(HasSubstr("f.yaml:3"), HasSubstr("did you mean 'RandCropImage'")));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {size: 3, interpolation: bicubicc}\n"),
              testing::AllOf(HasSubstr("f.yaml:2"), HasSubstr("'bicubicc' is not known"), HasSubstr("'bicubic'")));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {size: 3, backend: opencv}\n"),
              HasSubstr("expected cv2, pil"));
  EXPECT_THAT(refused_transforms("ops:\n  - RandomErasing: {mode: noise}\n"), HasSubstr("expected const, rand, pixel"));
  EXPECT_THAT(refused_transforms("ops:\n  - NormalizeImage: {order: whc}\n"), HasSubstr("order: 'whc' is not known"));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {scale: [1, 2]}\n"), HasSubstr("size"));
  EXPECT_THAT(refused_transforms("ops:\n  - NormalizeImage: {mean: [1, 2]}\n"), HasSubstr("expected 3 numbers, got 2"));
  EXPECT_THAT(refused_transforms("ops:\n  - RandCropImage: {size: 3}\n"), HasSubstr("no NormalizeImage"));
}

}  // namespace
}  // namespace trireme::preprocess
