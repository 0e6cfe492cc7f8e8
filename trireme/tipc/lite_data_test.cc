#include "trireme/tipc/lite_data.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/core/text.h"
#include "trireme/tipc/png_file.h"

namespace trireme::tipc {
namespace {

// The whole file, worked out with Python's zlib.
TEST(PngFile, OneRedPixel) {
  EXPECT_EQ(to_hex(png_of(1, 1, {255, 0, 0})),
            "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000f4944415478010104"
            "00fbff00ff0000030101008d1de5820000000049454e44ae426082");
}

TEST(LiteData, PicturesAndLists) {
  const TempDir folder;
  const auto data = folder.path() / "set";
  EXPECT_EQ(data_state(data), DataState::absent);
  make_lite_data(data, {.images = 6, .classes = 4});
  EXPECT_EQ(data_state(data), DataState::lite);
  for (const char* name : {"train", "val"}) {
    const auto lines = split(*read_file(data / (std::string(name) + "_list.txt")), '\n');
    ASSERT_EQ(lines.size(), 7u);  // the last is empty
    EXPECT_EQ(lines[5], std::string(name) + "/005.png 1");
    for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(read_file(data / split(lines[i], ' ')[0]));
  }
  EXPECT_NE(read_file(data / "train/000.png"), read_file(data / "val/000.png"));
}

TEST(LiteData, AsMnistHasIt) {
  const TempDir folder;
  make_lite_data(folder.path() / "set", {.images = 6, .classes = 4});
  const auto file = [&](const char* name) { return *read_file(folder.path() / "set" / name); };
  EXPECT_EQ(to_hex(file("train-images-idx3-ubyte").substr(0, 16)), "00000803000000060000001c0000001c");
  EXPECT_EQ(file("t10k-images-idx3-ubyte").size(), 16u + 6 * 28 * 28);
  EXPECT_EQ(to_hex(file("t10k-labels-idx1-ubyte")), "0000080100000006000102030001");
  EXPECT_NE(file("train-images-idx3-ubyte"), file("t10k-images-idx3-ubyte"));
}

TEST(LiteData, MadeAgainItIsTheSame) {
  const TempDir folder;
  make_lite_data(folder.path() / "set", {.images = 9});
  const auto before = read_file(folder.path() / "set/train/001.png");
  make_lite_data(folder.path() / "set", {.images = 2});
  EXPECT_EQ(read_file(folder.path() / "set/train/001.png"), before);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "set/train/008.png"));
}

TEST(LiteData, DataCopiedOverItIsLeftAlone) {
  for (const char* name : {"train_list.txt", "t10k-images-idx3-ubyte", "val/001.png", "train/008.png"}) {
    const TempDir folder;
    make_lite_data(folder.path(), {.images = 9});
    std::string own = *read_file(folder.path() / name);
    own.back() ^= 1;  // of the same size
    write_file_atomically(folder.path() / name, own);
    const auto before = read_file(folder.path() / "val/000.png");
    try {
      make_lite_data(folder.path(), {.images = 2});
      ADD_FAILURE() << name;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr((folder.path() / name).string() + " is not what"),
                                               testing::HasSubstr("remove " + lite_data_mark(folder.path()).string())));
    }
    EXPECT_EQ(read_file(folder.path() / name), own);
    EXPECT_EQ(read_file(folder.path() / "val/000.png"), before) << "nothing is changed";
  }
}

std::string refused_data(const std::filesystem::path& folder) {
  return refusal([&] { make_lite_data(folder, {.images = 1}); });
}

TEST(LiteData, AMarkOfSomebodyElseRemovesNothingOutside) {
  const TempDir folder;
  const auto data = folder.path() / "set", victim = folder.path() / "victim.txt";
  write_file_atomically(victim, "victim\n");
  for (const std::string& name : {std::string("../victim.txt"), victim.string(), std::string("train/../../victim.txt"),
                                  std::string("train/.."), std::string("..")}) {
    std::filesystem::remove_all(data);
    make_lite_data(data, {.images = 1});
    std::filesystem::remove_all(data / "train");
    const std::string mark = *read_file(lite_data_mark(data)) + fmt::format("{} 7 {:08x}\n", name, crc32("victim\n"));
    write_file_atomically(lite_data_mark(data), mark);
    EXPECT_THAT(refused_data(data), testing::HasSubstr("all is left alone")) << name;
    EXPECT_EQ(read_file(victim), "victim\n") << name;
    EXPECT_EQ(read_file(lite_data_mark(data)), mark) << name;
    EXPECT_FALSE(std::filesystem::exists(data / "train")) << name;
  }
}

TEST(LiteData, NothingIsMadeOrRemovedBehindALink) {
  const TempDir folder;
  const auto data = folder.path() / "set", elsewhere = folder.path() / "elsewhere";
  make_lite_data(data, {.images = 3});
  std::filesystem::rename(data / "train", elsewhere);
  std::filesystem::create_directory_symlink(elsewhere, data / "train");
  EXPECT_THAT(refused_data(data),
              testing::AllOf(testing::HasSubstr("'train/000.png'"), testing::HasSubstr("leads out of")));
  EXPECT_TRUE(read_file(elsewhere / "002.png"));
  std::filesystem::create_directory_symlink(data, folder.path() / "link");
  std::filesystem::remove(data / "train");
  EXPECT_EQ(refused_data(folder.path() / "link"), "nothing was thrown") << "where the folder itself lies is no matter";
}

TEST(LiteData, WhatIsNoFileIsNotOpened) {
  for (const char* name : {"train_list.txt", "made_by_trireme_tipc"}) {
    const TempDir folder;
    make_lite_data(folder.path(), {.images = 1});
    std::filesystem::remove(folder.path() / name);
    ASSERT_EQ(::mkfifo((folder.path() / name).c_str(), 0600), 0);
    EXPECT_THAT(refused_data(folder.path()), testing::HasSubstr("left alone")) << name;  // a reader would wait for ever
  }
}

TEST(LiteData, PicturesOfItsKindThatItDidNotMakeStay) {
  const TempDir folder;
  make_lite_data(folder.path(), {.images = 2});
  write_file_atomically(folder.path() / "train/002.png", "mine");
  make_lite_data(folder.path(), {.images = 2});
  EXPECT_EQ(read_file(folder.path() / "train/002.png"), "mine");
  EXPECT_THROW(make_lite_data(folder.path(), {.images = 3}), UsageError);
}

TEST(LiteData, AnEndHalfwayIsMadeGood) {
  const TempDir folder;
  make_lite_data(folder.path(), {.images = 4});
  const auto mark = *read_file(lite_data_mark(folder.path()));
  std::filesystem::remove(folder.path() / "train_list.txt");
  make_lite_data(folder.path(), {.images = 4});
  EXPECT_TRUE(read_file(folder.path() / "train_list.txt"));
  EXPECT_EQ(*read_file(lite_data_mark(folder.path())), mark);
}

TEST(LiteData, SomebodysOwnDataIsLeftAlone) {
  const TempDir folder;
  write_file_atomically(folder.path() / "mine.txt", "x");
  EXPECT_EQ(data_state(folder.path()), DataState::other);
  EXPECT_THROW(make_lite_data(folder.path()), UsageError);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "train"));
  EXPECT_EQ(data_state(folder.path() / "mine.txt"), DataState::other);
}

}  // namespace
}  // namespace trireme::tipc
