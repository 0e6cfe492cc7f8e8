#include "trireme/core/durable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "trireme/core/crc32c.h"
#include "trireme/core/file.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Crc32c, IsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, GoesOnFromAPart) {
  const std::string text = "a text that is longer than two words of eight bytes";
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(text.substr(cut), crc32c(text.substr(0, cut))), crc32c(text)) << cut;
}

TEST(DurableFile, SumsWhatItWrites) {
  const TempDir folder;
  DurableFile file(folder.path() / "x");
  file.write("1234");
  file.write("56789");
  const FileSum sum = file.commit();
  EXPECT_EQ(sum, (FileSum{9, 0xe3069283u}));
  EXPECT_EQ(sum_of_file(folder.path() / "x"), sum);
}

TEST(DurableFile, LeavesNothingWithoutCommit) {
  const TempDir folder;
  { DurableFile(folder.path() / "x").write("1"); }
  EXPECT_EQ(entries_in(folder.path()), 0u);
}

TEST(DurableFile, AFullDiskKeepsTheOldFile) {
  const TempDir folder;
  const fs::path path = folder.path() / "x";
  write_file_atomically(path, "old");
  std::string message;
  {
    const FileSizeLimit limit(50'000);
    message = message_of<SystemError>([&] { write_file_atomically(path, std::string(100'000, 'y')); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr(path.string()), HasSubstr("100000 bytes needed"), HasSubstr("is kept")));
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(entries_in(folder.path()), 1u) << "the temporary file is gone";
}

TEST(DurableFolder, KeepsThePreviousOne) {
  const TempDir parent;
  for (const char* content : {"first", "second", "third"}) {
    DurableFolder folder(parent.path(), "latest");
    put(folder.path() / "x", content);
    folder.commit();
  }
  EXPECT_EQ(content_of(parent.path() / "latest/x"), "third");
  EXPECT_EQ(content_of(parent.path() / "latest.previous/x"), "second");
  EXPECT_EQ(entries_in(parent.path()), 2u);
}

// As after a restart of a container, in which the process has the same number again.
TEST(DurableFolder, NamesThatAreTakenArePassedOver) {
  const TempDir dir;
  const std::string last = DurableFolder(dir.path(), "x").path().filename();  // .x.<process>-<number>.tmp
  const size_t dash = last.rfind('-');
  const int number = std::stoi(last.substr(dash + 1));
  const std::string process = last.substr(2, dash - 2);
  for (int i = 1; i <= 2; ++i)
    std::filesystem::create_directory(dir.path() / fmt::format(".x{}-{}.tmp", process, number + i));
  EXPECT_EQ(DurableFolder(dir.path(), "x").path().filename(), fmt::format(".x{}-{}.tmp", process, number + 3));
  std::ofstream(dir.path() / fmt::format("y{}-{}.tmp", process, number + 4)) << "theirs";
  DurableFile file(dir.path() / "y");
  file.write("ours");
  file.commit();
  EXPECT_EQ(read_file(dir.path() / "y"), "ours");
}

TEST(DurableFolder, InWorkIsNoLeftover) {
  const TempDir parent;
  DurableFolder folder(parent.path(), "a");
  fs::create_directory(parent.path() / ".b.1-1.tmp");
  fs::create_directory(parent.path() / ".config");
  put(parent.path() / ".c.tmp", "a file is not ours");
  EXPECT_EQ(remove_leftovers(parent.path()), 1);
  EXPECT_TRUE(fs::exists(folder.path()));
  EXPECT_EQ(entries_in(parent.path()), 3u);
}

}  // namespace
}  // namespace trireme
