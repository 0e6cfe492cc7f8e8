#include "trireme/data/image/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

std::string idx(const std::vector<uint32_t>& shape, const std::string& elements) {
  std::string bytes = big_endian(0x0800 + static_cast<uint32_t>(shape.size()));
  for (const uint32_t size : shape) bytes += big_endian(size);
  return bytes + elements;
}

std::string gzip(const std::string& content) {
  TempDir folder;
  const auto path = folder.path() / "x.gz";
  gzFile file = gzopen(path.c_str(), "wb9");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
  return read_file(path).value();
}

std::string refusal(const std::string& content) {
  return trireme::refusal([&] { parse_idx(content, "file"); });
}

class IdxFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& content) {
    write_file_atomically(folder_.path() / name, content, {.durable = false});
    return folder_.path() / name;
  }

  std::string refusal_of(const std::string& images, const std::string& labels, int classes = 10) {
    const auto image_path = write("images", images);
    const auto label_path = write("labels", labels);
    return trireme::refusal([&] { read_labelled_images(image_path, label_path, classes); });
  }

  const std::string images_ = idx({3, 2, 2}, "aaaabbbbcccc");
  const std::string labels_ = idx({3}, std::string("\0\1\2", 3));
  TempDir folder_;
};

TEST(Idx, ReadsShapeAndElements) {
  const IdxArray array = parse_idx(idx({2, 1, 3}, "abcdef"), "file");
  EXPECT_THAT(array.shape, ElementsAre(2, 1, 3));
  EXPECT_THAT(array.elements(), ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
}

TEST(Idx, BadMagic) {
  EXPECT_THAT(refusal("<html><head>"), HasSubstr("file: not an IDX file of unsigned bytes: it begins with 0x3c68746d"));
  EXPECT_THAT(refusal(big_endian(0x00000d03) + "…………"), HasSubstr("0x00000d03"));  // floats
  EXPECT_THAT(refusal(big_endian(0x00000800)), HasSubstr("0x00000800"));
  EXPECT_THAT(refusal(big_endian(0x00000809)), HasSubstr("0x00000809"));
}

TEST(Idx, CutOffAnywhere) {
  const std::string good = idx({2, 2}, "abcd");
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_THAT(refusal(good.substr(0, length)), HasSubstr("fetch it again")) << length;
  EXPECT_THAT(refusal(good.substr(0, 2)), HasSubstr("it has 2 bytes, but an IDX file begins with 4"));
  EXPECT_THAT(refusal(good.substr(0, 9)), HasSubstr("ends after 9 bytes, inside of its header of 12 for 2 dimensions"));
  EXPECT_THAT(refusal(good.substr(0, 15)), HasSubstr("says 2 x 2 = 4 bytes, but 3 follow; the file is cut off"));
}

TEST(Idx, TooLong) {
  EXPECT_THAT(refusal(idx({2, 2}, "abcde")), HasSubstr("says 2 x 2 = 4 bytes, but 5 follow; the file is too long"));
}

TEST(Idx, AHeaderThatPromisesMoreThanTheWorldHolds) {
  EXPECT_THAT(refusal(idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc")),
              HasSubstr("4294967295 x 4294967295 x 4294967295 = too many bytes, but 3 follow"));
  EXPECT_THAT(refusal(idx({0x80000000, 2, 0x80000000, 2}, "")), HasSubstr("too many"));  // 2^64 wraps to 0
}

TEST_F(IdxFiles, PlainAndCompressedAreReadAlike) {
  EXPECT_THAT(read_idx(write("plain", labels_)).shape, ElementsAre(3));
  EXPECT_THAT(read_idx(write("packed", gzip(labels_))).elements(), ElementsAre(0, 1, 2));
}

TEST_F(IdxFiles, DamagedCompression) {
  std::string content(100000, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i % 251);
  const std::string good = gzip(content);
  const auto read = [&](const std::string& bytes) {
    const auto path = write("x.gz", bytes);
    return trireme::refusal([&] { read_plain_or_gzip(path, 1 << 20); });
  };
  EXPECT_THAT(read(good.substr(0, good.size() / 2)), AllOf(HasSubstr("x.gz"), HasSubstr("damaged or cut off")));
  std::string flipped = good;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  EXPECT_THAT(read(flipped), HasSubstr("damaged or cut off"));
}

TEST_F(IdxFiles, ASmallFileThatUnpacksToALargeOne) {
  const auto path = write("bomb.gz", gzip(std::string(3 << 20, '\0')));
  EXPECT_THAT(trireme::refusal([&] { read_plain_or_gzip(path, 1 << 20); }),
              HasSubstr("bomb.gz: its content is larger than 1048576 bytes"));
  EXPECT_EQ(read_plain_or_gzip(path, 3 << 20).size(), 3u << 20);
}

TEST_F(IdxFiles, MissingFilesAndFolders) {
  EXPECT_THAT(trireme::refusal<SystemError>([&] { read_idx(folder_.path() / "none"); }),
              HasSubstr("none: No such file"));
  EXPECT_THAT(trireme::refusal<SystemError>([&] { read_idx(folder_.path()); }), HasSubstr("Is a directory"));
}

TEST_F(IdxFiles, ImagesWithTheirLabels) {
  const auto both = read_labelled_images(write("images", images_), write("labels", gzip(labels_)), 3);
  EXPECT_THAT(both.images.shape, ElementsAre(3, 2, 2));
  EXPECT_THAT(both.labels.elements(), ElementsAre(0, 1, 2));
}

TEST_F(IdxFiles, ALabelOutOfRange) {
  EXPECT_THAT(refusal_of(images_, labels_, 2), HasSubstr("labels: label #2 is 2, but labels must be from 0 to 1"));
}

TEST_F(IdxFiles, CountsThatDiffer) {
  EXPECT_THAT(refusal_of(images_, idx({2}, "\1\2")),
              AllOf(HasSubstr("images has 3 images, but "), HasSubstr("labels has 2 labels")));
}

TEST_F(IdxFiles, InterchangedAndEmpty) {
  EXPECT_THAT(refusal_of(labels_, images_), HasSubstr("images: images have 3 dimensions, but this file has 1 (3)"));
  EXPECT_THAT(refusal_of(images_, images_), HasSubstr("labels: labels have 1 dimensions, but this file has 3"));
  EXPECT_THAT(refusal_of(idx({0, 2, 2}, ""), idx({0}, "")), HasSubstr("images: it holds no images (0 x 2 x 2)"));
}

}  // namespace
}  // namespace trireme::data
