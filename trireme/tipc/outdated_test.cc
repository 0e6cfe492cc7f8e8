#include "trireme/tipc/outdated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"

namespace trireme::tipc {
namespace {

namespace fs = std::filesystem;

class OutdatedTest : public testing::Test {
 protected:
  void make(const fs::path& file) const {
    fs::create_directories((root_.path() / file).parent_path());
    write_file_atomically(root_.path() / file, "x");
  }
  bool there(const fs::path& file) const { return fs::exists(root_.path() / file); }
  fs::path chain() const { return root_.path() / "chain"; }

  Step infer(const std::string& log, int node = 0) const {
    Step step{.kind = StepKind::infer, .group = "group", .name = "infer", .command = {"true"}};
    step.log = chain() / "group" / log;
    step.node = node;
    return step;
  }

  TempDir root_;
};

TEST_F(OutdatedTest, OnlyLogsOfTheChainGo) {
  const std::vector<fs::path> old = {"chain/group/cpp_infer_cpu_batchsize_1.log", "chain/group/eval.log",
                                     "chain/group/cpp_infer_gpu_batchsize_64.log",
                                     "chain/other/cpp_infer_cpu_batchsize_1.log"};
  const std::vector<fs::path> kept = {"chain/group/cpp_infer_cpu_batchsize_1.node1.log", "chain/group/notes.log",
                                      "chain/group/cpp_infer_notes.txt", "chain/group/cpp_infer_folder.log/file",
                                      "cpp_infer_cpu_batchsize_1.log"};
  for (const auto& files : {old, kept})
    for (const fs::path& file : files) make(file);
  remove_old_logs(chain(), {infer("eval.log"), infer("cpp_infer_cpu_batchsize_1.log"), infer("never_written.log")});
  for (const fs::path& file : old) EXPECT_FALSE(there(file)) << file;
  for (const fs::path& file : kept) EXPECT_TRUE(there(file)) << file;
  remove_old_logs(chain(), {infer("cpp_infer_cpu_batchsize_4.node1.log", 1)});
  EXPECT_FALSE(there(kept[0]));
}

TEST_F(OutdatedTest, NothingOutsideGoes) {
  make("other/latest/file");
  make("chain/group/x");
  fs::create_directory_symlink(root_.path() / "other", chain() / "group/link");
  for (const char* path : {"group/link/latest", "../other/latest", "group/../../other"})
    EXPECT_THROW(remove_inside(chain(), chain() / path), UsageError) << path;
  EXPECT_TRUE(there("other/latest/file"));
  EXPECT_TRUE(leads_out(chain(), chain() / "group/link/not/there"));
  EXPECT_FALSE(leads_out(chain(), chain() / "group/not/there"));
  remove_inside(chain(), chain() / "group/link");
  EXPECT_FALSE(there("chain/group/link")) << "the link itself lies inside";
  EXPECT_TRUE(there("other/latest/file"));
  remove_inside(chain(), chain() / "group");
  EXPECT_FALSE(there("chain/group"));
  remove_inside(chain(), chain() / "not/there");
}

}  // namespace
}  // namespace trireme::tipc
