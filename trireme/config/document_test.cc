#include "trireme/config/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/test_text.h"
#include "trireme/config/write.h"
#include "trireme/core/file.h"

namespace trireme::config {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class Document : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, text, {.durable = false});
    return path.string();
  }
  std::string refused(const std::string& path) const {
    return refusal([&] { load_document(path); });
  }

  TempDir dir_{"config"};
};

TEST_F(Document, NamesAFileThatCannotBeRead) {
  file("ResNet50.yaml", "a: 1");
  EXPECT_THAT(refused((dir_.path() / "Resnet50.yaml").string()),
              EndsWith("/Resnet50.yaml: No such file or directory; did you mean " +
                       (dir_.path() / "ResNet50.yaml").string() + "?"));
  EXPECT_THAT(refused(dir_.path().string()), EndsWith(" is a folder; name a file in it: ResNet50.yaml"));
  std::filesystem::create_directory(dir_.path() / "empty");
  EXPECT_THAT(refused((dir_.path() / "empty").string()), EndsWith(" is a folder; it has no .yaml file"));
  EXPECT_THAT(refused((dir_.path() / "else.yaml").string()),
              EndsWith("No such file or directory; of the folder " + dir_.path().string() +
                       ": name a file in it: ResNet50.yaml"));
  EXPECT_THAT(refused("/nowhere/at/all.yaml"), EndsWith("cannot read the configuration /nowhere/at/all.yaml: No such "
                                                        "file or directory; there is no folder /nowhere/at"));
  const std::string within = (dir_.path() / "ResNet50.yaml" / "a b.yaml").string();
  EXPECT_THAT(refused(within), EndsWith("Not a directory; see `ls -ld '" + within + "'`"));
}

TEST_F(Document, RefusesAFileWithoutSections) {
  EXPECT_THAT(refused(file("a.yaml", "# nothing\n")), EndsWith("/a.yaml: the configuration is empty"));
  EXPECT_THAT(refused(file("b.yaml", "\n- 1\n")),
              EndsWith("/b.yaml:2: expected sections such as 'Global:', got a list of 1"));
}

TEST_F(Document, BuildsUponABase) {
  file("base/common.yaml", "Global: {epochs: 1, device: cpu}\nlist: [1, 2]\nonly: base\n");
  file("middle.yaml", "base: base/common.yaml\nGlobal: {epochs: 2}\n");
  const Node root =
      load_document(file("top/x.yaml", "base: ../middle.yaml\nGlobal:\n  seed: 3\nlist: [9]\nnew: {a: 1}\n"));
  EXPECT_EQ(write_yaml(*root.value()),
            "Global:\n  epochs: 2\n  device: cpu\n  seed: 3\nlist: [9]\nonly: base\nnew:\n  a: 1\n");
  EXPECT_THAT(root.section("Global").where(), EndsWith("top/x.yaml:2"));
  EXPECT_THAT(root.section("Global").at("device").where(), EndsWith("base/common.yaml:1"));
}

TEST_F(Document, RefusesACircleOfBases) {
  file("a.yaml", "base: b.yaml\n");
  const std::string b = file("b.yaml", "x: 1\nbase: a.yaml\n");
  EXPECT_THAT(refused(b), HasSubstr("a.yaml:1: base: a cycle"));
  EXPECT_THAT(refused(file("self.yaml", "base: ./self.yaml\n")), HasSubstr("self.yaml:1: base: a cycle"));
}

TEST_F(Document, NamesWhereABaseIsMissing) {
  EXPECT_THAT(refused(file("a.yaml", "x: 1\nbase: gone.yaml\n")), HasSubstr("a.yaml:2: cannot read the configuration"));
  EXPECT_THAT(refused(file("c.yaml", "base: [1]\n")), HasSubstr("c.yaml:1: base: expected a text, got a list of 1"));
}

TEST_F(Document, LimitsTheRowOfBases) {
  for (int i = 0; i < 20; ++i) file("n" + std::to_string(i), "base: n" + std::to_string(i + 1) + "\n");
  EXPECT_THAT(refused((dir_.path() / "n0").string()), HasSubstr("more than 10 files in a row"));
}

TEST_F(Document, ATextHasNoBase) {
  EXPECT_EQ(refusal([] { read_text("base: x.yaml\n"); }), "test.yaml:1: base: only a file can build upon another");
}

TEST_F(Document, OverridesComeLast) {
  file("b.yaml", "Global: {epochs: 1}\n");
  const Node root =
      load_document(file("a.yaml", "base: b.yaml\nGlobal: {epochs: 2}\n"), {"Global.epochs=3", "Global.epochs=4"});
  EXPECT_EQ(root.section("Global").need<int>("epochs"), 4);
}

}  // namespace
}  // namespace trireme::config
