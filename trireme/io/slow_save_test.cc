#include "trireme/io/slow_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/io/async_writer.h"
#include "trireme/io/test_log.h"

namespace trireme::io {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::MatchesRegex;

TEST(SlowSave, SaysHowFarItIsAndHowLongItTook) {
  LogLines lines;
  SlowSave note("output/latest", 4 << 20, 0ms);
  ASSERT_TRUE(lines.wait());
  note.wrote(4 << 20);
  note.done();
  EXPECT_THAT(lines.all(),
              ElementsAre(MatchesRegex(R"(\[checkpoint\] output/latest is being saved: 4\.0 MiB after [0-9.]+ s)"),
                          MatchesRegex(R"(\[checkpoint\] output/latest is saved: 4\.0 MiB in [0-9.]+ s)")));
}

TEST(SlowSave, AShortOneSaysNothing) {
  LogLines lines;
  SlowSave note("output/latest");
  note.wrote(100);
  note.done();
  EXPECT_THAT(lines.all(), IsEmpty());
}

TEST(SlowSave, OneThatFailsLeavesTheWordsToItsError) {
  LogLines lines;
  {
    const SlowSave note("output/latest", 0, 0ms);
    ASSERT_TRUE(lines.wait());
  }
  EXPECT_THAT(lines.all(), ElementsAre(MatchesRegex(".*is being saved: an unknown size.*")));
}

TEST(SlowSave, AWriterInTheBackgroundThatTakesLong) {
  LogLines lines;
  AsyncWriter writer([&](const std::string&, const Snapshot&) { ASSERT_TRUE(lines.wait()); }, {.patience = 0ms});
  writer.write("step_7", {{}, {{"model", TensorMap{}}}});
  writer.wait();
  EXPECT_THAT(lines.all(), ElementsAre(MatchesRegex(".*step_7 is being saved.*"), MatchesRegex(".*step_7 is saved.*")));
}

}  // namespace
}  // namespace trireme::io
