#include "trireme/io/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <condition_variable>
#include <mutex>

#include "trireme/core/error.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"
#include "trireme/io/async_writer.h"
#include "trireme/io/module_state.h"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Snapshot snapshot(int64_t step, int64_t elements = 1000) {
  return {.manifest = {.model = "Net", .step = step, .state = {{"sampler", "text"}}},
          .tensors = {{"model", {{"w", torch::full({elements}, static_cast<double>(step), torch::kFloat)}}},
                      {"optimizer", {{"m", torch::full({4 * elements}, 2.0, torch::kFloat)}}}}};
}

class Checkpoints : public ::testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_)) found.push_back(entry.path().filename());
    return found;
  }
  std::vector<std::string> listed() const {
    std::vector<std::string> found;
    for (const Manifest& manifest : folder_.list()) found.push_back(manifest.name);
    return found;
  }
  void expect_newest(int64_t step) const {
    const auto newest = folder_.read_newest();
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->manifest.step, step);
    EXPECT_EQ(newest->tensors.at("model")["w"][0].item<int64_t>(), step);
  }

  TempDir parent_;
  fs::path path_ = parent_.path() / "output";
  CheckpointFolder folder_{path_};
};

TEST_F(Checkpoints, TextsMayBeAddedLater) {
  folder_.write("latest", snapshot(5));
  folder_.set_state("latest", {{"best", "0.5"}, {"sampler", "other"}});
  const Snapshot read = folder_.read("latest");
  EXPECT_EQ(read.manifest.state, (std::map<std::string, std::string>{{"best", "0.5"}, {"sampler", "other"}}));
  EXPECT_EQ(read.manifest.step, 5);
  expect_newest(5);
  EXPECT_THAT(refusal([&] { folder_.set_state("none", {}); }), HasSubstr("none/manifest.json is missing"));
}

TEST_F(Checkpoints, ReadAsTheyWereWritten) {
  Snapshot written = snapshot(5);
  folder_.write("step_000005", written);
  const auto read = folder_.read_newest();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->manifest.name, "step_000005");
  EXPECT_EQ(read->manifest.model, "Net");
  EXPECT_EQ(read->manifest.state.at("sampler"), "text");
  EXPECT_TRUE(torch::equal(read->tensors.at("model")["w"], written.tensors.at("model")["w"]));
  EXPECT_TRUE(torch::equal(read->tensors.at("optimizer")["m"], written.tensors.at("optimizer")["m"]));
  EXPECT_TRUE(fs::exists(path_ / "step_000005/model.safetensors"));
}

TEST_F(Checkpoints, AreNoneInAnEmptyOrAbsentFolder) {
  EXPECT_FALSE(folder_.read_newest());
  fs::create_directories(path_ / "tensorboard");
  put(path_ / "train.log", "text");
  put(path_ / "tensorboard/events", "text");
  EXPECT_FALSE(folder_.read_newest());
  EXPECT_THAT(message_of<UsageError>([&] { folder_.read("latest"); }), HasSubstr("no checkpoint latest"));
}

TEST_F(Checkpoints, OlderNumberedOnesGo) {
  for (const int step : {1, 2, 3, 10}) folder_.write("step_" + std::to_string(step), snapshot(step));
  EXPECT_THAT(names(), UnorderedElementsAre("step_3", "step_10"));
  EXPECT_THAT(listed(), ElementsAre("step_10", "step_3"));
}

TEST_F(Checkpoints, NamedOnesStayWithTheirPrevious) {
  folder_.write("best_model", snapshot(1));
  for (const int epoch : {1, 2, 3}) {
    folder_.write("epoch_" + std::to_string(epoch), snapshot(epoch));
    folder_.write("latest", snapshot(epoch));
  }
  EXPECT_THAT(names(), UnorderedElementsAre("best_model", "epoch_2", "epoch_3", "latest", "latest.previous"));
  EXPECT_EQ(folder_.read("latest.previous").manifest.step, 2);
  EXPECT_EQ(folder_.read("best_model").manifest.step, 1);
  expect_newest(3);
}

TEST_F(Checkpoints, AllStayWithKeepZero) {
  const CheckpointFolder all(path_, {.keep = 0});
  for (const int step : {1, 2, 3, 4}) all.write("step_" + std::to_string(step), snapshot(step));
  EXPECT_EQ(names().size(), 4u);
  EXPECT_THAT(message_of<UsageError>([&] { CheckpointFolder(path_, {.keep = 1}); }), HasSubstr("at least 2"));
}

TEST_F(Checkpoints, AFolderThatCannotBeLookedIntoIsNotAnEmptyOne) {
  fs::create_directory(path_);
  fs::create_directory_symlink("loop", path_ / "loop");  // ELOOP also for root, whom EACCES does not stop
  EXPECT_THROW(CheckpointFolder(path_ / "loop").read_newest(), SystemError);
  EXPECT_THROW(CheckpointFolder(path_ / "loop").list(), SystemError);
}

TEST_F(Checkpoints, TheNewestButOneName) {
  for (const int64_t step : {1, 2}) folder_.write("best_model", snapshot(step));
  EXPECT_FALSE(folder_.read_newest("best_model").has_value());
  folder_.write("latest", snapshot(3));
  folder_.write("best_model", snapshot(4));
  EXPECT_EQ(folder_.read_newest("best_model")->manifest.name, "latest");
  EXPECT_EQ(folder_.read_newest()->manifest.name, "best_model");
}

TEST_F(Checkpoints, NewestIsTheLastWrittenWhateverItsName) {
  folder_.write("step_9", snapshot(9));
  folder_.write("step_1", snapshot(1));
  expect_newest(1);
}

TEST_F(Checkpoints, OfAModelAsTheHeaderShows) {
  torch::nn::Linear net(2, 3);
  folder_.write("step_000500", {{.model = "ResNet50", .step = 500}, {{"model", state_dict(*net)}}});
  const torch::Tensor weight = net->weight.detach().clone();
  torch::nn::init::zeros_(net->weight);
  if (auto newest = folder_.read_newest()) load_into(*net, newest->tensors.at("model"));
  EXPECT_TRUE(torch::equal(net->weight, weight));
}

TEST_F(Checkpoints, HavePlainNames) {
  for (const char* name : {"", ".hidden", "a/b", "../up", "a b", "x.previous", "\xff"})
    EXPECT_THROW(folder_.write(name, snapshot(1)), UsageError) << name;
  EXPECT_THROW(folder_.write("ok", {.tensors = {{"../model", TensorMap()}}}), UsageError);
  EXPECT_FALSE(folder_.read_newest());
}

// --- damage: the one before is used, with a warning that names file and reason

struct Damage {
  const char* name;
  void (*inflict)(const fs::path& checkpoint);
  const char* reason;
};

class DamagedCheckpoints : public Checkpoints, public ::testing::WithParamInterface<Damage> {};

const Damage kDamages[] = {
    {"FlippedByte", [](const fs::path& c) { flip_byte(c / "model.safetensors", 300); }, "CRC-32C"},
    {"TruncatedFile", [](const fs::path& c) { fs::resize_file(c / "optimizer.safetensors", 100); }, "has 100 bytes"},
    {"MissingFile", [](const fs::path& c) { fs::remove(c / "model.safetensors"); }, "missing"},
    {"MissingManifest", [](const fs::path& c) { fs::remove(c / "manifest.json"); }, "manifest.json is missing"},
    {"EmptyManifest", [](const fs::path& c) { fs::resize_file(c / "manifest.json", 0); }, "manifest.json"},
    {"FlippedManifest", [](const fs::path& c) { flip_byte(c / "manifest.json", 60); }, "manifest.json"},
};
INSTANTIATE_TEST_SUITE_P(Each, DamagedCheckpoints, ::testing::ValuesIn(kDamages),
                         [](const auto& test) { return test.param.name; });

TEST_P(DamagedCheckpoints, ArePassedOver) {
  folder_.write("step_1", snapshot(1));
  folder_.write("step_2", snapshot(2));
  GetParam().inflict(path_ / "step_2");
  const CaughtLog log;
  expect_newest(1);
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_THAT(log.lines()[0], AllOf(HasSubstr("step_2"), HasSubstr(GetParam().reason)));
}

TEST_P(DamagedCheckpoints, AllOfThemAreAnErrorWithEachReason) {
  folder_.write("step_1", snapshot(1));
  folder_.write("step_2", snapshot(2));
  for (const char* name : {"step_1", "step_2"}) GetParam().inflict(path_ / name);
  const CaughtLog log;
  EXPECT_THAT(message_of<UsageError>([&] { folder_.read_newest(); }),
              AllOf(HasSubstr("none of the 2 checkpoints"), HasSubstr("\n  step_1: "), HasSubstr("\n  step_2: "),
                    HasSubstr(GetParam().reason)));
}

TEST_P(DamagedCheckpoints, DoNotStopTheNextWrite) {
  folder_.write("latest", snapshot(1));
  GetParam().inflict(path_ / "latest");
  folder_.write("latest", snapshot(2));
  const CaughtLog log;
  expect_newest(2);
}

TEST_F(Checkpoints, OfOneNameFallBackToThePrevious) {
  folder_.write("latest", snapshot(1));
  folder_.write("latest", snapshot(2));
  flip_byte(path_ / "latest/model.safetensors", 300);
  const CaughtLog log;
  expect_newest(1);
}

TEST_F(Checkpoints, OfAnotherModelAreRefusedByName) {
  folder_.write("latest", snapshot(1));
  const auto newest = folder_.read_newest();
  torch::nn::Linear other(2, 2);
  const std::string from = (path_ / newest->manifest.name).string();
  EXPECT_THAT(
      message_of<UsageError>([&] { load_into(*other, newest->tensors.at("model"), {.from = from}); }),
      AllOf(HasSubstr("output/latest"), HasSubstr("missing there: weight, bias"), HasSubstr("unknown here: w")));
}

// --- a write that does not end

TEST_F(Checkpoints, SurviveAKillInTheMiddle) {
  folder_.write("latest", snapshot(1));
  Snapshot large = snapshot(2);
  large.manifest.config = std::string(100'000, 'c');
  // in the first file, in the second, in the manifest
  for (const rlim_t bytes : {1'000, 10'000, 60'000}) {
    ASSERT_TRUE(killed_at_byte(bytes, [&] { folder_.write("latest", large); })) << bytes;
    EXPECT_EQ(names().size(), 2u) << "the half-written one is still there";
    expect_newest(1);
  }
  folder_.write("latest", snapshot(3));
  EXPECT_THAT(names(), UnorderedElementsAre("latest", "latest.previous")) << "and is removed now";
  expect_newest(3);
}

TEST_F(Checkpoints, HalfWrittenAreNoCheckpoints) {
  folder_.write("latest", snapshot(1));
  fs::copy(path_ / "latest", path_ / ".latest.77-0.tmp");
  const CaughtLog log;
  EXPECT_THAT(listed(), ElementsAre("latest"));
  expect_newest(1);
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST_F(Checkpoints, WithoutRoomKeepTheOneBefore) {
  folder_.write("step_1", snapshot(1));
  std::string message;
  {
    const FileSizeLimit limit(10'000);
    message = message_of<SystemError>([&] { folder_.write("step_2", snapshot(2)); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr("optimizer.safetensors"), HasSubstr("bytes needed"),
                             HasSubstr("checkpoint step_1 is kept")));
  EXPECT_THAT(names(), ElementsAre("step_1"));
  expect_newest(1);
}

TEST(FullDisk, KeepsTheCheckpointBefore) {
  const SmallDisk disk(size_t{1} << 20);
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs; WithoutRoomKeepTheOneBefore has no such need";
  const CheckpointFolder folder(disk.path());
  folder.write("step_1", snapshot(1, 20'000));
  const std::string message = message_of<SystemError>([&] { folder.write("step_2", snapshot(2, 50'000)); });
  EXPECT_THAT(message, AllOf(HasSubstr("No space left"), HasSubstr("800"), HasSubstr("checkpoint step_1 is kept")));
  EXPECT_EQ(folder.read_newest()->manifest.step, 1);
  folder.write("step_3", snapshot(3, 20'000));
  EXPECT_EQ(folder.read_newest()->manifest.step, 3) << "the space of the failed one is free again";
}

TEST_F(Checkpoints, InAReadOnlyFolderAreAnError) {
  folder_.write("step_1", snapshot(1));
  fs::permissions(parent_.path(), fs::perms(0755));
  fs::permissions(path_, fs::perms(0555));
  const NotRoot user;
  EXPECT_THAT(message_of<SystemError>([&] { folder_.write("step_2", snapshot(2)); }),
              AllOf(HasSubstr(path_.string()), HasSubstr("Permission denied"), HasSubstr("step_1 is kept")));
  expect_newest(1);
}

TEST_F(Checkpoints, WhereAFileIsAreAnError) {
  put(path_, "a file");
  EXPECT_THAT(message_of<SystemError>([&] { folder_.write("step_1", snapshot(1)); }), HasSubstr(path_.string()));
}

// --- in the background

/// A way to write that waits until it is let go.
class Gate {
 public:
  AsyncWriter::Write write() {
    return [this](const std::string& name, const Snapshot& snapshot) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::seconds(20), [this] { return open_; });
      written_.push_back(name);
      value_ = snapshot.tensors.at("model")["w"][0].item<int64_t>();
    };
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  std::vector<std::string> written() {
    const std::lock_guard lock(mutex_);
    return written_;
  }
  int64_t value() {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::vector<std::string> written_;
  int64_t value_ = 0;
};

TEST_F(Checkpoints, AreWrittenInTheBackground) {
  AsyncWriter writer(folder_);
  for (const int step : {1, 2, 3}) writer.write("step_" + std::to_string(step), snapshot(step));
  writer.wait();
  EXPECT_THAT(listed(), ElementsAre("step_3", "step_2"));
  expect_newest(3);
}

TEST(AsyncWriter, TakesACopyAndReturnsAtOnce) {
  Gate gate;
  AsyncWriter writer(gate.write());
  Snapshot training = snapshot(1);
  writer.write("a", training);
  training.tensors.at("model")["w"].fill_(99);  // the next step
  EXPECT_THAT(gate.written(), IsEmpty());
  gate.open();
  writer.wait();
  EXPECT_THAT(gate.written(), ElementsAre("a"));
  EXPECT_EQ(gate.value(), 1);
}

TEST(AsyncWriter, WritesOneAtATimeWithADeadline) {
  Gate gate;
  AsyncWriter writer(gate.write(), {.timeout = Millis(20)});
  writer.write("a", snapshot(1));
  EXPECT_THAT(message_of<SystemError>([&] { writer.write("b", snapshot(2)); }),
              AllOf(HasSubstr("checkpoint a is still being written"), HasSubstr("20 ms")));
  EXPECT_THROW(writer.wait(), SystemError);
  gate.open();
}

TEST(AsyncWriter, TellsErrorsOnce) {
  AsyncWriter writer([](const std::string& name, const Snapshot&) { throw SystemError(ENOSPC, "no {}", name); });
  writer.write("a", snapshot(1));
  EXPECT_THAT(message_of<SystemError>([&] { writer.write("b", snapshot(1)); }), HasSubstr("no a"));
  writer.wait();  // it is told
  writer.write("c", snapshot(1));
  EXPECT_THAT(message_of<SystemError>([&] { writer.wait(); }), HasSubstr("no c"));
}

TEST(AsyncWriter, LogsTheErrorNobodyAskedFor) {
  const CaughtLog log;
  {
    AsyncWriter writer([](const std::string&, const Snapshot&) { throw SystemError(ENOSPC, "no room"); });
    writer.write("a", snapshot(1));
  }
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("checkpoint a was not written"), HasSubstr("no room"))));
}

TEST_F(Checkpoints, OnAFullDiskSaySoAtTheNextCall) {
  AsyncWriter writer(folder_);
  writer.write("step_1", snapshot(1));
  writer.wait();
  {
    const FileSizeLimit limit(10'000);
    writer.write("step_2", snapshot(2));
    EXPECT_THAT(message_of<SystemError>([&] { writer.wait(); }), HasSubstr("checkpoint step_1 is kept"));
  }
  expect_newest(1);
}

}  // namespace
}  // namespace trireme::io
