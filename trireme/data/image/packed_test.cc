#include "trireme/data/image/packed.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "trireme/core/crc32c.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/data/image/decode.h"
#include "trireme/data/image/ops.h"
#include "trireme/data/image/pack_format.h"
#include "trireme/data/image/test_images.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Four pictures 0.jpg, 1.jpg …, of which the third is not there.
class PackedTest : public ::testing::Test {
 protected:
  PackedTest() {
    for (int i = 0; i < 4; ++i) {
      pictures_.push_back(image::jpeg_of(image::waves(60 + i, 40, i)));
      list_.add(std::to_string(i) + ".jpg", i);
      if (i != 2) write(std::to_string(i) + ".jpg", pictures_.back());
    }
    list_.set_source("train_list.txt");
  }
  void write(const std::string& name, const std::string& bytes) const {
    write_file_atomically(folder_.path() / name, bytes, {.durable = false});
  }
  void pack(int short_side = 0, int threads = 2) const {
    const CaughtLog log;
    pack_images(file_, list_, {.root = folder_.path(), .short_side = short_side, .threads = threads});
    EXPECT_EQ(log.count("2.jpg: No such file or directory; it will be a bad picture of"), 1U);
    EXPECT_EQ(log.count("4 pictures (1 could not be read)"), 1U);
  }
  /// What opening the file says when its bytes are these.
  std::string complaint(const std::string& bytes) const {
    write("train.pack", bytes);
    return message_of<UsageError>([&] { PackedImages(file_, list_); });
  }

  TempDir folder_;
  std::filesystem::path file_ = folder_.path() / "train.pack";
  std::vector<std::string> pictures_;
  ImageList list_;
};

TEST_F(PackedTest, HoldsTheFilesAsTheyAre) {
  pack();
  const PackedImages packed(file_, list_);
  EXPECT_FALSE(packed.holds_pixels());
  for (const int i : {3, 0, 1, 0}) EXPECT_EQ(packed.bytes(i), pictures_[static_cast<size_t>(i)]);
  EXPECT_THAT(message_of<image::ImageError>([&] { packed.bytes(2); }), HasSubstr("could not be read when"));
}

TEST_F(PackedTest, IsTheSameFileOnAnyNumberOfThreads) {
  pack(0, 1);
  const auto one = read_file(file_);
  pack(0, 7);
  EXPECT_EQ(one, read_file(file_));
}

TEST_F(PackedTest, HoldsPixelsThatAreShrunkAndNeverEnlarged) {
  for (const int side : {20, 100}) {
    pack(side);
    const PackedImages packed(file_, list_);
    ASSERT_TRUE(packed.holds_pixels());
    image::Image got, expected = image::decode(pictures_[3]);
    image::Random random(0);
    if (side < 40)
      image::ResizeImage{.resize_short = side, .method = {image::Interpolation::bilinear, image::Backend::pil}}(
          expected, random);
    packed.read(3, got);
    EXPECT_EQ(got, expected);
    EXPECT_EQ(got.height, std::min(side, 40));
    EXPECT_THROW(packed.read(2, got), image::ImageError);
  }
}

TEST_F(PackedTest, NoticesAnotherListButNotOtherLabels) {
  pack();
  ImageList relabelled;
  for (int64_t i = 0; i < 4; ++i) relabelled.add(list_.path(i), 7);
  EXPECT_EQ(PackedImages(file_, relabelled).bytes(3), pictures_[3]);
  ImageList other;
  for (const char* name : {"0.jpg", "1.jpg", "3.jpg", "2.jpg"}) other.add(name, 0);
  other.set_source("other.txt");
  EXPECT_THAT(message_of<UsageError>([&] { PackedImages(file_, other); }),
              AllOf(HasSubstr("was made of another list: of train_list.txt, with 4 pictures and checksum"),
                    HasSubstr("this one, other.txt, has 4 and"), HasSubstr("make it again: trireme pack")));
  other.add("4.jpg", 1);
  EXPECT_THAT(message_of<UsageError>([&] { PackedImages(file_, other); }), HasSubstr("other.txt, has 5 and"));
}

TEST_F(PackedTest, RefusesWhatIsNotAWholePackedFile) {
  pack();
  const std::string whole = read_file(file_).value();
  EXPECT_THAT(complaint(pictures_[0]), HasSubstr("is not a packed file of pictures"));
  EXPECT_THAT(complaint(std::string(kPackMagic)), HasSubstr("is cut off: its 8 bytes"));
  for (const size_t missing : {size_t{1}, size_t{48}, whole.size() / 2})
    EXPECT_THAT(complaint(whole.substr(0, whole.size() - missing)), HasSubstr("is cut off"));
  EXPECT_THAT(complaint(std::string(kPackMagic) + whole.substr(kPackMagic.size() + 1)), HasSubstr("is damaged"));
  write("train.pack", "");
  EXPECT_THAT(message_of<UsageError>([&] { PackedImages(file_, list_); }), HasSubstr("is empty or not a regular file"));
  std::filesystem::remove(file_);
  EXPECT_THAT(message_of<UsageError>([&] { PackedImages(file_, list_); }),
              HasSubstr("No such file or directory; make it: trireme pack"));
}

TEST_F(PackedTest, NoticesEveryChangedByte) {
  pack();
  const std::string whole = read_file(file_).value();
  for (size_t at = 0; at < whole.size(); at += at + 200 < whole.size() ? 97 : 1) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write("train.pack", damaged);
    EXPECT_THROW(
        {
          const PackedImages packed(file_, list_);
          for (const int i : {0, 1, 3}) packed.bytes(i);
        },
        UsageError)
        << "byte " << at;
  }
}

TEST_F(PackedTest, RefusesEntriesOutOfRangeWhateverTheirSums) {
  PackEntry entry{.offset = 8, .bytes = 1};
  const auto file_of = [&] {
    const std::string entries(reinterpret_cast<const char*>(&entry), sizeof entry);
    return std::string(kPackMagic) + entries +
           footer_text({.samples = 1, .entries_at = 8, .entries_sum = crc32c(entries)});
  };
  EXPECT_THAT(message_of<UsageError>([&] { PackIndex(file_of(), "x"); }),
              HasSubstr("x is damaged: picture 0 has 1 bytes"));
  entry.bytes = 0;
  EXPECT_EQ(PackIndex(file_of(), "x").footer().samples, 1U);
}

TEST_F(PackedTest, RefusesWhatCannotBePacked) {
  EXPECT_THAT(message_of<UsageError>([&] { pack_images(file_, ImageList()); }), HasSubstr("the list is empty"));
  EXPECT_THAT(message_of<UsageError>([&] { pack_images(file_, list_, {.root = "/nowhere"}); }),
              HasSubstr("/nowhere is not a folder"));
  EXPECT_THAT(message_of<UsageError>([&] { pack_images(file_, list_, {.short_side = -1}); }),
              HasSubstr("short_side is -1"));
  const CaughtLog log;
  const TempDir empty;
  EXPECT_THAT(message_of<UsageError>([&] { pack_images(file_, list_, {.root = empty.path()}); }),
              HasSubstr("none of the 4 pictures of the list can be read"));
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace trireme::data
