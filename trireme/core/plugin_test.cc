#include "trireme/core/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A folder of its own, and TRIREME_PLUGIN_DIR that names it.
class PluginTest : public ::testing::Test {
 protected:
  PluginTest() {
    std::string name = fs::temp_directory_path() / "trireme-plugin-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    ::setenv("TRIREME_PLUGIN_DIR", folder_.c_str(), 1);
  }
  ~PluginTest() override {
    ::unsetenv("TRIREME_PLUGIN_DIR");
    fs::remove_all(folder_);
  }

  fs::path folder_;
};

TEST_F(PluginTest, AnAbsentOneSaysWhereItWasLookedFor) {
  const Plugin plugin = Plugin::open("libtrireme_nothing.so");
  EXPECT_FALSE(plugin);
  EXPECT_EQ(plugin.problem(), "there is no libtrireme_nothing.so in " + folder_.string());
  EXPECT_EQ(Plugin::locate("libtrireme_nothing.so"), std::nullopt);
}

TEST_F(PluginTest, WithoutTheVariableTheProgramsOwnFoldersAreSearched) {
  ::unsetenv("TRIREME_PLUGIN_DIR");
  const fs::path program = fs::read_symlink("/proc/self/exe");
  EXPECT_EQ(Plugin::locate(program.filename()), program.string());
  EXPECT_THAT(Plugin::open("libtrireme_nothing.so").problem(),
              AllOf(HasSubstr(program.parent_path().string()),
                    HasSubstr((program.parent_path().parent_path() / "lib").string())));
}

TEST_F(PluginTest, OneThatCannotBeLoadedGivesTheSystemsReason) {
  std::ofstream(folder_ / "libtrireme_broken.so") << "not a library";
  EXPECT_EQ(Plugin::locate("libtrireme_broken.so"), (folder_ / "libtrireme_broken.so").string());
  const Plugin plugin = Plugin::open("libtrireme_broken.so");
  EXPECT_FALSE(plugin);
  EXPECT_THAT(plugin.problem(), AllOf(HasSubstr("cannot load " + folder_.string()), HasSubstr("too short")));
}

TEST_F(PluginTest, OneOfAnotherUserIsNotCalledAbsent) {
  std::ofstream(folder_ / "libtrireme_private.so") << "secret";
  const auto tell = [&](const fs::path& forbidden) {
    fs::permissions(forbidden, fs::perms::none);
    constexpr uid_t kNobody = 65534;  // whom root cannot read for
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) ::_exit(2);
    std::fprintf(stderr, "%s\n", Plugin::open("libtrireme_private.so").problem().c_str());
    ::_exit(0);
  };
  EXPECT_EXIT(tell(folder_), testing::ExitedWithCode(0), "into " + folder_.string() + " this user may not look");
  fs::permissions(folder_, fs::perms::all);
  EXPECT_EXIT(tell(folder_ / "libtrireme_private.so"), testing::ExitedWithCode(0),
              "libtrireme_private.so is there, but this user may not read it");
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(PluginTest, WhatIsInNoFolderIsLeftToTheSystem) {
  const Plugin library = Plugin::open("libm.so.6");
  ASSERT_TRUE(library) << library.problem();
  auto* root = library.function<double(double)>("sqrt");
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(root(49), 7);
  EXPECT_EQ(library.symbol<int>("no_such_symbol"), nullptr);
}

TEST_F(PluginTest, ItsFolderGoesBeforeTheSystems) {
  std::ofstream(folder_ / "libm.so.6") << "not a library";
  EXPECT_THAT(Plugin::open("libm.so.6").problem(), HasSubstr("cannot load " + folder_.string()));
}

}  // namespace
}  // namespace trireme
