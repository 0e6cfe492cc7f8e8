// The steps of an export, each for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/deploy/export/fold.h"
#include "trireme/deploy/export/lower.h"
#include "trireme/deploy/export/staging.h"
#include "trireme/deploy/export/test_networks.h"
#include "trireme/models/models.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf, ::testing::HasSubstr;

TEST(Files, AreAllOrNoneWhenAMoveFails) {
  const TempDir folder;
  for (const char* file : {"a", "last"}) write_file_atomically(folder.path() / file, "old");
  {
    Staging staging(folder.path());
    fs::create_directory(staging.path() / "nowhere");
    for (const char* file : {"new", "a", "nowhere/b", "last"}) write_file_atomically(staging.path() / file, "new");
    EXPECT_THROW(staging.commit({"new", "a", "nowhere/b", "last"}), SystemError);
  }
  for (const char* file : {"a", "last"}) EXPECT_EQ(read_file(folder.path() / file), "old") << file;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
}

TEST(Files, OfKilledExportsAreRemovedByTheNext) {
  const TempDir folder;
  fs::create_directories(folder.path() / ".export-killed" / "old");
  const Staging staging(folder.path());
  EXPECT_FALSE(fs::exists(folder.path() / ".export-killed"));
}

TEST(Files, PutAsideByAKilledExportStayUntilThereAreNewOnes) {
  const TempDir folder;
  const fs::path old = folder.path() / ".export-killed" / "old";
  fs::create_directories(old);
  write_file_atomically(old / "a", "the last good one");
  { const Staging given_up(folder.path()); }
  EXPECT_EQ(read_file(old / "a"), "the last good one");
  Staging staging(folder.path());
  write_file_atomically(staging.path() / "a", "new");
  staging.commit({"a"});
  EXPECT_FALSE(fs::exists(old));
}

TEST(Files, ThatCannotBePutBackAreKeptAndNamed) {
  const TempDir folder;
  for (const char* file : {"a", "last"}) write_file_atomically(folder.path() / file, "old");
  std::string message;
  {
    Staging staging(folder.path());
    fs::create_directory(staging.path() / "nowhere");
    for (const char* file : {"a", "nowhere/b", "last"}) write_file_atomically(staging.path() / file, "new");
    fs::remove(staging.path() / "a");
    fs::create_directories(staging.path() / "a" / "full");  // placed, then in the way of the old one
    message = refusal<Error>([&] { staging.commit({"a", "nowhere/b", "last"}); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr("cannot rename"), HasSubstr("old files"), HasSubstr("/.export-")));
  EXPECT_EQ(read_file(folder.path() / "last"), "old") << "what can be put back is";
  const std::string kept = message.substr(message.rfind(folder.path().string() + "/.export-"));
  EXPECT_EQ(read_file(kept.substr(0, kept.find(',')) + "/a"), "old");
}

TEST(Files, OfOneFolderAreWrittenByOneExportAtATime) {
  const TempDir folder;
  {
    const Staging first(folder.path());
    EXPECT_THAT(refusal([&] { Staging second(folder.path()); }), testing::HasSubstr("another export is writing to"));
    EXPECT_TRUE(fs::exists(first.path()));
  }
  const Staging third(folder.path());
}

TEST(Weights, OfTheSameNameGetNamesThatNoneHas) {
  Traced traced = trace(models::lenet(10), {.channels = 1, .height = 28, .width = 28});
  const auto name = [&](size_t i) -> std::string& { return traced.weights.at(traced.graph->inputs()[i]).name; };
  name(1) = "w_2";
  name(2) = name(3) = "w";
  traced.remove_unused();
  EXPECT_EQ(name(1), "w_2");
  EXPECT_EQ(name(2), "w");
  EXPECT_EQ(name(3), "w_3");
}

TEST(Fold, LeavesANormalisationWhoseScaleIsComputed) {
  const ShortNet net([](ShortNetImpl& self, torch::Tensor x) {
    const torch::Tensor y = torch::conv2d(x, self.large, {}, 1, 1);
    return torch::batch_norm(y, self.log_scale.exp(), {}, self.mean, self.variance, false, 0.1, 1e-5, false);
  });
  Traced traced = trace(net, {.channels = 3, .height = 4, .width = 4});
  fold_batch_norms(traced);
  EXPECT_EQ(traced.nodes_of(c10::aten::batch_norm).size(), 1U);
}

TEST(Fold, LeavesANormalisationOfItsOwn) {
  torch::nn::Sequential net(torch::nn::BatchNorm2d(3), torch::nn::Flatten());
  net->eval();
  const Network network(net.ptr(), [net](const torch::Tensor& x) mutable { return net->forward(x); });
  Traced traced = trace(network, {.channels = 3, .height = 4, .width = 4});
  fold_batch_norms(traced);
  EXPECT_EQ(traced.nodes_of(c10::aten::batch_norm).size(), 1U);
  EXPECT_NO_THROW(lower(traced, {.model = "Own"}));
}

TEST(Onnx, EveryOperatorIsInTheDocumentation) {
  const std::string page = read_file(fs::path(__FILE__).parent_path() / "../../../docs/export.md").value();
  const size_t start = page.find("<!-- operators -->");
  ASSERT_NE(start, std::string::npos);
  std::string listed = page.substr(start, page.find("\n\n", start) - start);
  for (const std::string& op : lowered_operators()) EXPECT_THAT(listed, HasSubstr("`" + op + "`"));
  EXPECT_EQ(static_cast<size_t>(std::count(listed.begin(), listed.end(), '`')), 2 * lowered_operators().size());
}

/// The shapes that Reshape nodes get, in their order: no other whole numbers are weights.
std::vector<std::vector<int64_t>> reshapes(const Lowered& lowered) {
  std::vector<std::vector<int64_t>> all;
  for (const torch::Tensor& kept : lowered.kept)
    if (kept.scalar_type() == torch::kLong)
      all.emplace_back(kept.data_ptr<int64_t>(), kept.data_ptr<int64_t>() + kept.numel());
  return all;
}

TEST(Onnx, ReshapesAreRightForAnyNumberOfImages) {
  const OwnNet net([](torch::Tensor x) { return split_heads(x).permute({1, 0, 2, 3}).flatten(1); });
  const auto shapes = reshapes(lower(trace(net, {.channels = 6, .height = 2, .width = 1}), {.model = "Own"}));
  ASSERT_EQ(shapes.size(), 2U);
  for (const int64_t batch : {1, 2, 3}) {
    const torch::Tensor x = torch::randn({batch, 6, 2, 1});
    EXPECT_TRUE(x.reshape(shapes[0]).permute({2, 0, 1}).reshape(shapes[1]).equal(split_heads(x))) << batch;
  }
}

TEST(Onnx, PermutationsCountFromTheFront) {
  const OwnNet net([](torch::Tensor x) { return x.permute({0, -1, 1, -2}).flatten(1); });
  const Lowered lowered = lower(trace(net, {.channels = 3, .height = 2, .width = 2}), {.model = "Own"});
  std::string file;
  lowered.model.write([&](std::string_view bytes) { file += bytes; });
  EXPECT_THAT(file, HasSubstr(std::string("perm\x40\x00\x40\x03\x40\x01\x40\x02", 12)));
}

TEST(Onnx, SizeIsWhatIsWritten) {
  const auto net = models::lenet(10);
  const Lowered lowered = lower(trace(net, {.channels = 1, .height = 28, .width = 28}), {.model = "LeNet"});
  uint64_t written = 0;
  lowered.model.write([&](std::string_view bytes) { written += bytes.size(); });
  EXPECT_EQ(written, lowered.model.size());
}

TEST(Onnx, FilesAbove2GbAreRefused) {
  OnnxModel model("Huge", {"x", {"batch", 1}}, {{"y", {"batch", 1}}});
  const std::string_view no_one_reads_this("", uint64_t{3} << 30);
  model.add(OnnxWeight{.name = "w", .type = OnnxType::float32, .shape = {3 << 28}, .bytes = no_one_reads_this});
  try {
    model.write([](std::string_view) { FAIL(); });
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Huge"), HasSubstr("2147483647")));
  }
}

}  // namespace
}  // namespace trireme::deploy
