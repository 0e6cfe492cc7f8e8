#include "trireme/deploy/serve/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"

namespace trireme::serve {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class ModelsInTest : public testing::Test {
 protected:
  fs::path folder(const std::string& name) {
    fs::create_directories(root() / name);
    return root() / name;
  }
  void make_model(const std::string& name) { write_file_atomically(folder(name) / bundle::kDescriptionFile, "x"); }
  const fs::path& root() const { return dir_.path(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const ModelSource& source : models_in(root(), {})) found.push_back(source.name);
    return found;
  }

 private:
  TempDir dir_;
};

TEST_F(ModelsInTest, EachSubfolderWithADescriptionIsOneByItsName) {
  make_model("b");
  make_model("a");
  folder("notes");
  write_file_atomically(root() / "readme.txt", "x");
  EXPECT_THAT(names(), ElementsAre("a", "b"));
}

TEST_F(ModelsInTest, HiddenFoldersAreNotModels) {
  make_model(".backup");
  make_model("lost+found");
  make_model("a");
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(ModelsInTest, AnExportAtWorkIsAModelThatCannotBeLoaded) {
  make_model("a");
  make_model("b/.export-x");
  EXPECT_THAT(names(), ElementsAre("a", "b"));
  make_model(".export-x");
  const std::vector<ModelSource> sources = models_in(root(), {});
  ASSERT_EQ(sources.size(), 1U);
  EXPECT_EQ(sources[0].name, "");
  EXPECT_THROW(sources[0].load(), Error);
}

TEST_F(ModelsInTest, WhatCannotBeLookedAtIsAModelThatCannotBeLoaded) {
  make_model("a");
  fs::create_symlink("loop", root() / "loop");
  EXPECT_THAT(names(), ElementsAre("a", "loop"));
  EXPECT_THROW(models_in(root(), {})[1].load(), Error);
}

}  // namespace
}  // namespace trireme::serve
