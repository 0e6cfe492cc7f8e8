#include "trireme/deploy/serve/port_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"

namespace trireme::serve {
namespace {

TEST(PortFile, AnOldOneIsGoneBeforeTheNewOneIsThere) {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "port";
  write_file_atomically(path, "1\n");
  {
    PortFile file(path);
    EXPECT_FALSE(std::filesystem::exists(path));
    file.write(8080);
    EXPECT_EQ(read_file(path), "8080\n");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PortFile, WhatAnotherServerWroteStays) {
  const TempDir folder;
  const std::filesystem::path path = folder.path() / "port";
  {
    PortFile file(path);
    file.write(8080);
    write_file_atomically(path, "8081\n");
  }
  EXPECT_EQ(read_file(path), "8081\n");
}

TEST(PortFile, WhateverElseIsThereInTheEndStays) {
  const TempDir folder;
  const std::filesystem::path large = folder.path() / "large", pipe = folder.path() / "pipe";
  {
    PortFile first(large), second(pipe);
    first.write(8080);
    std::filesystem::resize_file(large, size_t{65} << 20);  // more than read_file() takes
    second.write(8080);
    std::filesystem::remove(pipe);
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(large));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(PortFile, OnlyFilesAreReplaced) {
  const TempDir folder;
  EXPECT_THROW(PortFile{folder.path()}, UsageError);
  const std::filesystem::path link = folder.path() / "link";
  std::filesystem::create_symlink("/dev/null", link);
  EXPECT_THROW(PortFile{link}, UsageError);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST(PortFile, MayBeNone) {
  PortFile file("");
  file.write(8080);
}

}  // namespace
}  // namespace trireme::serve
