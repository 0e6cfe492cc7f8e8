#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/document.h"
#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/deploy/bundle/description.h"

namespace trireme::bundle {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kText = R"(
Global: {model_name: LeNet}
Input: {name: image, shape: [-1, 3, 8, 6]}
Output: {name: prob, activation: sigmoid, class_num: 2}
PreProcess:
  transform_ops:
    - ResizeImage: {resize_short: 16}
    - CropImage: {size: [6, 8]}
    - NormalizeImage: {scale: 1.0/255.0, mean: [0, 0, 0], std: [1, 1, 1], order: ''}
    - ToCHWImage:
PostProcess: {Topk: {topk: 1, label_list: ["no", '1']}}
)";

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string parse_refusal(const std::string& text) {
  return refusal([&] { parse(text, "inference.yml"); });
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kText;
  return text.replace(text.find(from), from.size(), to);
}

TEST(Bundle, ReadsAllOfIt) {
  const Description found = parse(kText, "f");
  EXPECT_EQ(found.model_name, "LeNet");
  EXPECT_EQ(found.input, (Input{.name = "image", .channels = 3, .height = 8, .width = 6}));
  EXPECT_EQ(found.input.elements(), 144u);
  EXPECT_EQ(found.output, (Output{.name = "prob", .activation = Activation::sigmoid, .class_num = 2}));
  EXPECT_THAT(found.labels, ElementsAre("no", "1"));
  EXPECT_EQ(found.topk, 1);
  EXPECT_EQ(make_transforms(found).height(), 8);
}

TEST(Bundle, AFileOfPaddleClasLacksOnlyOurSections) {
  const Description found =
      parse("Input: {shape: [-1, 3, 224, 224]}\nPostProcess: {Topk: {topk: 5, label_list: [a, b, c]}}\n", "f");
  EXPECT_EQ(found.output.class_num, 3);
  EXPECT_EQ(found.output.activation, Activation::softmax);
}

TEST(Bundle, WritesWhatItReads) {
  const TempDir dir;
  Description out = parse(kText, "f");
  out.labels = {"a \"quoted\" one, with: signs #", "null"};
  out.model_name = "1e3";
  write(dir.path() / "new" / "folder", out);
  const Description in = read(dir.path() / "new" / "folder");
  EXPECT_EQ(in.model_name, "1e3");
  EXPECT_EQ(in.input, out.input);
  EXPECT_EQ(in.output, out.output);
  EXPECT_EQ(in.labels, out.labels);
  EXPECT_EQ(in.topk, 1);
  EXPECT_EQ(to_yaml(in), to_yaml(out));
  EXPECT_EQ(make_transforms(in).elements(), 144u);
}

TEST(Bundle, EveryActivationIsWrittenAndRead) {
  Description description = parse(kText, "f");
  for (const Activation activation : {Activation::softmax, Activation::sigmoid, Activation::none}) {
    description.output.activation = activation;
    EXPECT_EQ(parse(to_yaml(description), "f").output.activation, activation) << to_string(activation);
  }
}

TEST(Bundle, ANetworkThatIsNotAClassifierHasShapes) {
  const TempDir folder;
  const Description written{.model_name = "Parts",
                            .output = {.activation = Activation::none, .shapes = {{-1, 21, 8, 6}, {-1}}}};
  write(folder.path(), written);
  EXPECT_EQ(read(folder.path()).output, written.output);
}

TEST(Bundle, RefusesWithTheLine) {
  EXPECT_THAT(parse_refusal(""), HasSubstr("inference.yml"));
  EXPECT_THAT(parse_refusal("- a\n- b\n"), HasSubstr("a list of 2"));
  EXPECT_THAT(parse_refusal("Global: {a: [\n"), HasSubstr("inference.yml"));
  EXPECT_THAT(parse_refusal("Global: {}\n"), HasSubstr("Input"));
  EXPECT_THAT(parse_refusal(with("[-1, 3, 8, 6]", "[3, 8, 6]")),
              AllOf(HasSubstr("inference.yml:3: Input.shape"), HasSubstr("got 3 numbers")));
  EXPECT_THAT(parse_refusal(with("3, 8, 6", "3, 0, 6")), HasSubstr("number 3 is 0"));
  EXPECT_THAT(parse_refusal(with("class_num: 2", "class_num: 0")), HasSubstr("Output.class_num"));
  EXPECT_THAT(parse_refusal(with("sigmoid", "softmux")), HasSubstr("'softmax'"));
  EXPECT_THAT(parse_refusal(with("class_num: 2", "class_num: 3")),
              AllOf(HasSubstr("label_list"), HasSubstr("2 labels for 3 classes")));
  EXPECT_THAT(parse_refusal(with("topk: 1", "topk: 0")), HasSubstr("topk"));
}

TEST(Bundle, KnowsTheNetworksItWasWrittenWith) {
  const TempDir dir;
  const std::string network(100'000, 'n');
  write_file_atomically(dir.path() / kOnnxFile, network);
  write(dir.path(), parse(kText, "f"));
  const Description found = read(dir.path());
  EXPECT_EQ(found.files.size(), 1u);
  EXPECT_EQ(found.files.at(kOnnxFile), sum_of_file(dir.path() / kOnnxFile));
  check_network(dir.path(), kOnnxFile, found);
  check_network(dir.path(), kTorchFile, found);  // not known

  write_file_atomically(dir.path() / kOnnxFile, network.substr(1));
  EXPECT_THAT(
      refusal([&] { check_network(dir.path(), kOnnxFile, found); }),
      AllOf(HasSubstr("inference.onnx has 99999 bytes, but inference.yml says 100000"), HasSubstr("export again")));
  write_file_atomically(dir.path() / kOnnxFile, "N" + network.substr(1));
  EXPECT_THAT(refusal([&] { check_network(dir.path(), kOnnxFile, found); }),
              AllOf(HasSubstr(fmt::format("inference.yml says {}", found.files.at(kOnnxFile).crc32c)),
                    HasSubstr(dir.path().string()), HasSubstr("copy the whole folder")));
  std::filesystem::remove(dir.path() / kOnnxFile);
  EXPECT_THROW(check_network(dir.path(), kOnnxFile, found), SystemError);
}

TEST(Bundle, RefusesSumsThatAreNone) {
  const auto with_files = [](const std::string& files) { return parse_refusal(kText + ("Files: " + files)); };
  EXPECT_EQ(with_files("{inference.pt: {bytes: 12, crc32c: 4294967295}}"), "");
  EXPECT_THAT(with_files("yes"), HasSubstr("inference.yml:12: Files: expected a section"));
  EXPECT_THAT(with_files("{inference.pt: 12}"), HasSubstr("Files.inference.pt: expected a section"));
  EXPECT_THAT(with_files("{inference.pt: {bytes: 12}}"), HasSubstr("Files.inference.pt.crc32c: missing"));
  EXPECT_THAT(with_files("{inference.pt: {bytes: many, crc32c: 1}}"), HasSubstr("expected a whole number, got 'many'"));
  EXPECT_THAT(with_files("{inference.pt: {bytes: -1, crc32c: 1}}"), HasSubstr("Files.inference.pt.bytes"));
  EXPECT_THAT(with_files("{inference.pt: {bytes: 1, crc32c: 4294967296}}"), HasSubstr("4294967295"));
  EXPECT_THAT(with_files("{inference.pt: {bytes: 1, crc32c: [1]}}"), HasSubstr("a list of 1"));
}

TEST(Bundle, MissingFilesAreNamed) {
  const TempDir dir;
  EXPECT_THAT(refusal([&] { read(dir.path() / "none"); }), AllOf(HasSubstr("none"), HasSubstr("trireme export")));
  EXPECT_THAT(refusal([&] { read(dir.path()); }), HasSubstr("inference.yml"));
}

TEST(Bundle, WriteRefusesWhatReadWould) {
  const TempDir dir;
  Description broken = parse(kText, "f");
  broken.labels.emplace_back("one too many");
  EXPECT_THAT(refusal([&] { write(dir.path(), broken); }), HasSubstr("3 labels for 2 classes"));
  EXPECT_FALSE(read_file(dir.path() / kDescriptionFile));
  EXPECT_THROW(write("/proc/nowhere", parse(kText, "f")), SystemError);
}

TEST(Bundle, TransformsMustFitTheInput) {
  const auto transforms_of = [](const std::string& text) {
    return refusal([&] { make_transforms(parse(text, "f")); });
  };
  EXPECT_THAT(transforms_of(with("size: [6, 8]", "size: 7")), HasSubstr("make 3x7x7 (channels, height, width), but "
                                                                        "Input.shape wants 3x8x6"));
  EXPECT_THAT(transforms_of(with("shape: [-1, 3,", "shape: [-1, 2,")), HasSubstr("wants 2x8x6"));
  EXPECT_THAT(transforms_of("Global: {model_name: Net}\nInput: {shape: [-1, 3, 2, 2]}\nOutput: {class_num: 2}\n"),
              AllOf(HasSubstr("Net"), HasSubstr("no PreProcess.transform_ops")));
  EXPECT_THAT(
      transforms_of(with("    - NormalizeImage: {scale: 1.0/255.0, mean: [0, 0, 0], std: [1, 1, 1], order: ''}\n", "")),
      AllOf(HasSubstr("f:6"), HasSubstr("NormalizeImage")));
}

TEST(Bundle, PicturesOfAnySizeBecomeThoseOfMnist) {
  const Description grey = parse(
      "Input: {shape: [-1, 1, 28, 28]}\nOutput: {class_num: 10}\nPreProcess: {transform_ops: [NormalizeImage: {mean: "
      "[0.5], std: 0.5}, ToCHWImage: null]}\n",
      "f");
  const image::Transforms transforms = make_transforms(grey);
  EXPECT_EQ(transforms.width(), 28);
  EXPECT_EQ(transforms.channels(), 3);
}

TEST(Bundle, NoByteOfTheDescriptionCanChangeUnnoticed) {
  const TempDir folder("bundle");
  write(folder.path(), parse(kText, "f"));
  const std::filesystem::path file = folder.path() / kDescriptionFile;
  const std::string whole = read_file(file).value();
  EXPECT_EQ(read(folder.path()).topk, 1);
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char flip : {'\x01', '\x80'}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      write_file_atomically(file, changed, {.durable = false});
      EXPECT_THAT(refusal([&] { read(folder.path()); }),
                  AllOf(HasSubstr("inference.yml"), HasSubstr("changed or damaged since it was exported")))
          << at;
    }
  }
  for (size_t size = 1; size < whole.size(); size += 7) {
    write_file_atomically(file, whole.substr(0, size), {.durable = false});
    EXPECT_NE(refusal([&] { read(folder.path()); }), "") << size;
  }
  write_file_atomically(file, whole + "\n", {.durable = false});
  EXPECT_NE(refusal([&] { read(folder.path()); }), "");
}

TEST(Bundle, ADescriptionOfAnOlderTriremeIsReadWithANote) {
  const TempDir folder("bundle");
  write_file_atomically(folder.path() / kDescriptionFile, kText);
  const CaughtLog log;
  EXPECT_EQ(read(folder.path()).model_name, "LeNet");
  EXPECT_EQ(log.count("has no checksum"), 1U);
}

}  // namespace
}  // namespace trireme::bundle
