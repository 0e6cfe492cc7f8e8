#include "trireme/tipc/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/owner_lock.h"
#include "trireme/tipc/test_texts.h"

namespace trireme::tipc {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Without training, so that no launcher is needed: an export and two inferences, all shells.
class ChainTest : public testing::Test {
 protected:
  int run(const std::string& export_script, const std::string& infer_script, PlanOptions plan = {}) {
    auto lines = with_line(short_lines(), 25, "infer_export:sh -c '" + export_script + "' sh");
    lines = with_line(lines, 27, "inference:sh -c '" + infer_script + "' sh");
    plan.output = (folder_.path() / "out").string();
    Chain chain(make_case(parse_config(text_of(lines), "x.txt")), Mode::whole_infer,
                {.plan = plan, .say = [&](Tone, std::string_view line) { said_ += std::string(line) + "\n"; }});
    return chain.run();
  }

  std::string file(const std::string& name) const {
    return read_file(folder_.path() / "out/tiny/whole_infer" / name).value_or("no file");
  }

  TempDir folder_;
  std::string said_;
};

TEST_F(ChainTest, AllIsWell) {
  EXPECT_EQ(run("mkdir -p ${2#*=}", "test -d ${3#*=}"), 0) << said_;
  EXPECT_THAT(said_, AllOf(HasSubstr("Run successfully with command - sh -c"), HasSubstr("3 steps: 3 passed")));
  EXPECT_THAT(file("results_cpp.log"), AllOf(HasSubstr("Run successfully with command - tiny - sh -c"),
                                             HasSubstr("/infer/cpp_infer_cpu_batchsize_4.log!\n")));
  EXPECT_THAT(file("junit.xml"), HasSubstr("tests=\"3\" failures=\"0\""));
}

TEST_F(ChainTest, AFailureIsToldAndNamed) {
  EXPECT_EQ(run("true", "echo no model; exit 3"), 1);
  EXPECT_THAT(said_, AllOf(HasSubstr("Run failed with command"), HasSubstr("exit 3 after"), HasSubstr("  | no model"),
                           HasSubstr("1 passed, 2 failed")));
  EXPECT_THAT(file("junit.xml"), HasSubstr("<failure message=\"exit 3\">"));
}

TEST_F(ChainTest, WhatAnEarlierChainLeftIsGone) {
  ASSERT_EQ(run("mkdir -p ${2#*=}", "echo old"), 0) << said_;
  EXPECT_THAT(file("infer/cpp_infer_cpu_batchsize_4.log"), HasSubstr("old"));
  write_file_atomically(folder_.path() / "out/tiny/whole_infer/infer/cpp_infer_cpu_batchsize_8.log", "other numbers");
  write_file_atomically(folder_.path() / "out/tiny/whole_infer/infer/mine.log", "kept");
  EXPECT_EQ(run("exit 1", "echo new"), 1);
  for (const char* name : {"1", "4", "8"})
    EXPECT_EQ(file(std::string("infer/cpp_infer_cpu_batchsize_") + name + ".log"), "no file") << name;
  EXPECT_EQ(file("infer/mine.log"), "kept");
}

TEST_F(ChainTest, ASecondChainInTheFolderIsRefusedAndChangesNothing) {
  const auto folder = folder_.path() / "out/tiny/whole_infer";
  ASSERT_EQ(run("mkdir -p ${2#*=}", "echo old"), 0) << said_;
  const OwnerLock other(folder / ".chain.lock");
  try {
    run("true", "echo new");
    ADD_FAILURE() << "both ran";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder.string()), HasSubstr("process"), HasSubstr("runs a chain")));
  }
  EXPECT_THAT(file("junit.xml"), HasSubstr("tests=\"3\" failures=\"0\""));
  EXPECT_THAT(file("infer/cpp_infer_cpu_batchsize_4.log"), HasSubstr("old"));
  EXPECT_EQ(run("true", "true", {.nodes = {1}}), 0) << "another machine of the same chain";
}

// A folder in the report's place refuses it as a full disk does.
TEST_F(ChainTest, AReportThatCannotBeWrittenDoesNotEndTheChain) {
  const std::string report = (folder_.path() / "out/tiny/whole_infer/results_cpp.log").string();
  EXPECT_EQ(run(fmt::format("rm {0}; mkdir -p {0}/in_the_way ${{2#*=}}", report), "true"), trireme::exit_code::kSystem);
  EXPECT_THAT(said_, HasSubstr("3 steps: 3 passed"));
  const size_t told = said_.find("the chain goes on without its reports");
  ASSERT_NE(told, std::string::npos) << said_;
  EXPECT_EQ(said_.find("the chain goes on", told + 1), std::string::npos) << said_;
  EXPECT_THAT(file("junit.xml"), HasSubstr("tests=\"3\" failures=\"0\""));
}

TEST_F(ChainTest, OtherMachinesWriteFilesOfTheirOwn) {
  run("true", "true", {.nodes = {1}});
  EXPECT_THAT(file("results_cpp.node1.log"), HasSubstr("Run successfully"));
  EXPECT_THAT(file("junit.node1.xml"), HasSubstr("testsuite"));
  EXPECT_EQ(file("junit.xml"), "no file");
}

}  // namespace
}  // namespace trireme::tipc
