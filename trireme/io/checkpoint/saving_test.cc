#include "trireme/io/checkpoint/saving.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/file.h"
#include "trireme/io/test_log.h"

namespace trireme::detail {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

TEST(Saving, ToASlowDiskSaysSo) {
  io::LogLines lines;
  const TempDir dir;
  const io::CheckpointFolder folder(dir.path());
  Saving saving(folder, nullptr, "step_7", {}, Millis(0));
  ASSERT_TRUE(lines.wait());
  saving.begin("model", {{"w", torch::kFloat, {256, 1024}}});
  saving.write("w", torch::ones({256, 1024}));
  saving.finish({});
  EXPECT_THAT(lines.all(), ElementsAre(MatchesRegex(".*/step_7 is being saved: .*"),
                                       MatchesRegex(R"(.*/step_7 is saved: 1\.0 MiB in [0-9.]+ s)")));
  EXPECT_EQ(folder.list().size(), 1u);
}

}  // namespace
}  // namespace trireme::detail
