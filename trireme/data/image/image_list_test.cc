#include "trireme/data/image/image_list.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageListFile : public ::testing::Test {
 protected:
  ImageList read(const std::string& text, const ImageListOptions& options = {}) {
    write_file_atomically(file_, text, {.durable = false});
    return read_image_list(file_, options);
  }
  std::string refusal(const std::string& text, const ImageListOptions& options = {}) {
    return trireme::refusal([&] { read(text, options); });
  }
  std::string at(int line) const { return file_.string() + ":" + std::to_string(line) + ": "; }

  TempDir folder_;
  std::filesystem::path file_ = folder_.path() / "list.txt";
};

std::vector<std::string> paths(const ImageList& list) {
  std::vector<std::string> paths;
  for (int64_t i = 0; i < list.size(); ++i) paths.emplace_back(list.path(i));
  return paths;
}

TEST_F(ImageListFile, IsPathsAndLabels) {
  const ImageList list = read("train/a.JPEG 3\nb/x.png 0\nc 12", {.class_num = 13});
  EXPECT_EQ(list.size(), 3);
  EXPECT_THAT(paths(list), ElementsAre("train/a.JPEG", "b/x.png", "c"));
  EXPECT_THAT(list.labels(), ElementsAre(3, 0, 12));
  EXPECT_EQ(list.class_num(), 13);
  EXPECT_TRUE(list.class_names().empty());
}

TEST_F(ImageListFile, MayComeFromAnotherSystem) {
  const ImageList list = read("a.jpg 1\r\n\r\n \t\nb.jpg 2  \r\n\n");
  EXPECT_THAT(paths(list), ElementsAre("a.jpg", "b.jpg"));
  EXPECT_THAT(list.labels(), ElementsAre(1, 2));
}

TEST_F(ImageListFile, MayBeginWithAByteOrderMark) {
  EXPECT_THAT(paths(read("\xef\xbb\xbf"
                         "a.jpg 1\n\xef\xbb\xbf.jpg 2\n")),
              ElementsAre("a.jpg", "\xef\xbb\xbf.jpg"));
}

TEST_F(ImageListFile, PathsMayContainTheDelimiter) {
  EXPECT_THAT(paths(read("my cat.jpg 1\n")), ElementsAre("my cat.jpg"));
  const ImageList list = read("a b,c.jpg,7\n", {.delimiter = ","});
  EXPECT_THAT(paths(list), ElementsAre("a b,c.jpg"));
  EXPECT_THAT(list.labels(), ElementsAre(7));
  EXPECT_THAT(paths(read("a b.jpg\t7\n", {.delimiter = "\t"})), ElementsAre("a b.jpg"));
}

TEST_F(ImageListFile, BadLinesAreNamed) {
  EXPECT_THAT(refusal("a 1\n\nb\n"), HasSubstr(at(3) + "'b' has no label; a line is a path, ' ' and a number"));
  EXPECT_THAT(refusal("a 1\nb x1\n"), HasSubstr(at(2) + "'x1' is not a label; it must be a whole number from 0"));
  for (const char* label : {"-1", "1.5", "2147483648", "0x1", "+1", "1e3"})
    EXPECT_THAT(refusal(std::string("b ") + label), HasSubstr("is not a label")) << label;
  EXPECT_THAT(refusal("a 9\nb 10\n", {.class_num = 10}),
              HasSubstr(at(2) + "the label is 10, but with class_num 10 labels are from 0 to 9"));
  EXPECT_THAT(refusal("a,1\n"), HasSubstr("'a,1' has no label"));
  EXPECT_THAT(refusal("a \x01\xff 1x\n"), HasSubstr("'1x'"));
  EXPECT_THAT(refusal(std::string(60000, 'x')), HasSubstr("no label"));
  EXPECT_THAT(refusal(std::string(3 << 20, 'x')), HasSubstr("longer than 65536 bytes"));
}

TEST_F(ImageListFile, WithoutAPictureIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr(file_.string() + ": the list has no picture in its 0 lines"));
  EXPECT_THAT(refusal("\n\r\n \n"), HasSubstr("no picture in its 3 lines"));
  try {
    read_image_list(folder_.path() / "none.txt");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.number(), ENOENT);
    EXPECT_THAT(error.what(), HasSubstr("none.txt"));
  }
  EXPECT_THROW(read_image_list(folder_.path()), SystemError);
  EXPECT_THAT(refusal("a 1", {.delimiter = ""}), HasSubstr("the delimiter is ''"));
  EXPECT_THAT(refusal("a 1", {.delimiter = "\n"}), HasSubstr("the delimiter is '\\x0a'"));
}

TEST_F(ImageListFile, LabelsMayBeLeftOut) {
  const ImageList list = read("a.jpg\nmy dog.jpg\nb.jpg 4\n", {.labels_required = false});
  EXPECT_THAT(paths(list), ElementsAre("a.jpg", "my dog.jpg", "b.jpg"));
  EXPECT_THAT(list.labels(), ElementsAre(ImageList::kUnlabelled, ImageList::kUnlabelled, 4));
  EXPECT_EQ(read("a.jpg\n", {.labels_required = false}).class_num(), 0);
}

TEST_F(ImageListFile, LabelsMayBeRenumbered) {
  const ImageListOptions relabel{.class_num = 3, .relabel = true};
  EXPECT_THAT(read("a 900\nb 7\nc 900\nd 12\n", relabel).labels(), ElementsAre(2, 0, 2, 1));
  EXPECT_THAT(refusal("a 9\nb 7\nc 8\nd 12\n", relabel), HasSubstr("the label is 3, but with class_num 3"));
  EXPECT_THAT(read("a 9\nb\n", {.labels_required = false, .relabel = true}).labels(), ElementsAre(0, -1));
}

TEST_F(ImageListFile, OfAMillionLinesTakesLittleMemory) {
  constexpr int kLines = 1'000'000;
  std::string text;
  for (int i = 0; i < kLines; ++i)
    text += fmt::format("n{:08}/n{:08}_{}.JPEG {}\n", i % 21841, i % 21841, i, i % 21841);
  const ImageList list = read(text, {.class_num = 21841});
  ASSERT_EQ(list.size(), kLines);
  EXPECT_EQ(list.path(777'777), fmt::format("n{:08}/n{:08}_777777.JPEG", 777'777 % 21841, 777'777 % 21841));
  EXPECT_EQ(list.label(777'777), 777'777 % 21841);
  EXPECT_LT(list.bytes(), 1'500'000'000 / 14);  // what a line of 14 million may take
}

class ImageFolder : public ::testing::Test {
 protected:
  void touch(const std::string& name) {
    const auto file = folder_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    write_file_atomically(file, "", {.durable = false});
  }
  std::string refusal(const std::filesystem::path& folder) {
    return trireme::refusal<Error>([&] { read_image_folder(folder); });
  }
  TempDir folder_;
};

TEST_F(ImageFolder, HasAClassForEachSubFolder) {
  for (const char* name : {"dog/2.jpg", "cat/b.PNG", "dog/1.JPEG", "dog/old/0.jpeg", "cat/notes.txt", "readme.jpg"})
    touch(name);
  const ImageList list = read_image_folder(folder_.path());
  EXPECT_THAT(paths(list), ElementsAre("cat/b.PNG", "dog/1.JPEG", "dog/2.jpg", "dog/old/0.jpeg"));
  EXPECT_THAT(list.labels(), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(list.class_names(), ElementsAre("cat", "dog"));
}

// Leaving them out without a word would train on less than the user has.
TEST_F(ImageFolder, HasAlsoPicturesOfFormatsThatAreRefusedLater) {
  for (const char* name : {"cat/1.jpg", "cat/2.BMP", "cat/3.tif", "cat/4.tiff", "cat/5.webp", "cat/6.gif", "cat/7.mp4"})
    touch(name);
  EXPECT_EQ(read_image_folder(folder_.path()).size(), 6);
}

TEST(UnreadEnding, IsTheLastPartOfAName) {
  for (const char* name : {"a.bmp", "b/a.TIFF", ".webp", "a.heic", "a.AVIF"})
    EXPECT_TRUE(has_unread_ending(name)) << name;
  for (const char* name : {"bmp", "a.bmp.jpg", "a.bmp2", "", "a.", "gif/a.png"})
    EXPECT_FALSE(has_unread_ending(name)) << name;
}

TEST_F(ImageFolder, WithoutPicturesIsRefused) {
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("there is no sub-folder"));
  touch("dog/1.jpg");
  touch("emu/1.txt");
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("emu: class 1 has no picture"));
  EXPECT_THAT(refusal(folder_.path() / "none"), HasSubstr("cannot read the image folder"));
  EXPECT_THAT(refusal(folder_.path() / "dog/1.jpg"), HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace trireme::data
