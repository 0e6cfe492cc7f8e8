#include "trireme/io/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"
#include "trireme/data/loader.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/data/wrappers.h"
#include "trireme/io/checkpoint/agreement.h"
#include "trireme/io/rng_state.h"
#include "trireme/optim/amp.h"
#include "trireme/optim/ema.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizers.h"
#include "trireme/parallel/data_parallel.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width = 6) {
    first = register_module("first", torch::nn::Linear(3, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    last = register_module("last", torch::nn::Linear(width, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::dropout(torch::relu(norm(first(x))), 0.5, is_training()));
  }
  torch::nn::Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(Net);

data::TensorDataset points() {
  const torch::Tensor x = torch::arange(120, torch::kFloat).reshape({40, 3}).sin();
  return {x, x.sum(1, true)};
}

// All that one run of a program has.
struct Program {
  explicit Program(int64_t seed = 1, int64_t width = 6) {
    torch::manual_seed(static_cast<uint64_t>(seed));
    net = Net(width);
    adam = std::make_unique<torch::optim::Adam>(net->parameters(), 0.01);
    ema.emplace(*net, optim::Ema::Options{.decay = 0.9});
  }
  TrainingState state() {
    return {.model = net, .optimizer = *adam, .loader = loader, .ema = *ema, .extra = {{"scaler", scaler}}};
  }
  void step(const torch::Tensor& x, const torch::Tensor& y) {
    adam->zero_grad();
    torch::mse_loss(net->forward(x), y).backward();
    adam->step();
    ema->update();
    ++at.step;
  }
  /// Until `last` steps are taken.
  void run(int64_t last) {
    for (; at.step < last; ++at.epoch)
      for (auto& [x, y] : loader) {
        step(x, y);
        if (at.step == last) return;
      }
  }
  std::string bits() {
    std::string all = to_text(loader.state());
    for (const auto& [group, tensors] : detail::take(state()).tensors)
      for (const auto& item : tensors) {
        const torch::Tensor tensor = item.value().contiguous();
        all += item.key() + std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
      }
    return all;
  }

  Net net = nullptr;
  std::unique_ptr<torch::optim::Adam> adam;
  data::Loader loader{points(), {.batch_size = 4, .shuffle = true, .seed = 5}};
  std::optional<optim::Ema> ema;
  optim::GradScaler scaler{{.init_scale = 1024}};
  Progress at;
};

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    set_log_sink([this](LogLevel level, std::string_view text) {
      if (level >= LogLevel::warning) warnings += text;
    });
  }
  ~CheckpointTest() override { set_log_sink(nullptr); }

  /// Checkpoints of steps 3 and 6.
  void save_two() {
    Program program;
    Checkpoint checkpoint(folder);
    for (const int64_t step : {3, 6}) {
      program.run(step);
      checkpoint.save(program.state(), program.at);
    }
  }
  std::filesystem::path file(int step, const std::string& name) const {
    return folder / fmt::format("step_{:09}", step) / name;
  }

  TempDir temporary{"checkpoint"};
  std::filesystem::path folder = temporary.path() / "out";
  std::string warnings;
};

TEST_F(CheckpointTest, TheFirstStartIsAfresh) {
  Program program;
  const std::string before = program.bits();
  const Restored restored = Checkpoint(folder).restore(program.state());
  EXPECT_FALSE(restored);
  EXPECT_EQ(restored.step, 0);
  EXPECT_EQ(restored.world_size, 0);
  EXPECT_EQ(program.bits(), before);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(CheckpointTest, AResumedRunHasTheBitsOfAnUnbrokenOne) {
  for (const bool async : {false, true}) {
    for (const int64_t broken : {1, 9, 10, 13}) {  // within the first epoch, before its end, at its end, in the next
      Program unbroken;
      unbroken.run(20);
      const io::TensorMap random = io::rng_state();
      const auto here = folder / fmt::format("{}{}", async, broken);
      {
        Program program;
        Checkpoint checkpoint(here, {.async = async});
        program.run(broken);
        checkpoint.save(program.state(), program.at);
        program.run(broken + 2);  // changes what is being written, if it were not copied
      }
      Program resumed(99);
      const Restored restored = Checkpoint(here).restore(resumed.state());
      ASSERT_TRUE(restored);
      EXPECT_EQ(restored.step, broken);
      resumed.at = restored;
      resumed.run(20);
      EXPECT_EQ(resumed.bits(), unbroken.bits()) << broken;
      EXPECT_TRUE(io::rng_state()["cpu"].equal(random["cpu"])) << broken;
    }
  }
}

TEST_F(CheckpointTest, EverythingElseComesBackToo) {
  Program program;
  program.scaler.load_state("scaler 1 scale=128 good=3 bad=0");
  Checkpoint checkpoint(folder);
  checkpoint.set_config("Arch: Net # ä");
  checkpoint.save(program.state(), {.step = 7, .epoch = 2});
  Program other(2);
  const Restored restored = checkpoint.restore(other.state());
  EXPECT_EQ(restored.name, "step_000000007");
  EXPECT_EQ(restored.epoch, 2);
  EXPECT_EQ(restored.config, "Arch: Net # ä");
  EXPECT_EQ(restored.world_size, 1);
  EXPECT_EQ(other.scaler.current_scale(), 128);
  const io::Manifest manifest = io::CheckpointFolder(folder).list().at(0);
  EXPECT_EQ(manifest.model, "trireme::(anonymous namespace)::NetImpl");
  EXPECT_EQ(manifest.optimizer, "torch::optim::Adam");
}

TEST_F(CheckpointTest, AnythingMayStandForTheModel) {
  Net net;
  auto pointer = net.ptr();
  DataParallel parallel(net, init_parallel_env());
  torch::nn::Module& module = *net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  Checkpoint checkpoint(folder);
  checkpoint.save({net, sgd}, {.step = 1});
  checkpoint.save({.model = pointer, .optimizer = &sgd}, {.step = 2});
  checkpoint.save({.model = parallel, .optimizer = sgd}, {.step = 3});
  checkpoint.save({.model = module}, {.step = 4});
  EXPECT_EQ(checkpoint.restore({.model = parallel}).step, 4);
}

TEST_F(CheckpointTest, MasterWeightsGoOnInFullPrecision) {
  const auto make = [](Net& net, std::optional<optim::MasterWeights>& masters) {
    optim::lower_precision(*net, torch::kBFloat16);
    masters.emplace(net->parameters());
    return torch::optim::Adam(masters->parameters(), 1e-4);
  };
  Net net, other;
  std::optional<optim::MasterWeights> masters, other_masters;
  auto adam = make(net, masters);
  auto other_adam = make(other, other_masters);
  for (const torch::Tensor& master : masters->parameters()) master.mutable_grad() = torch::ones_like(master);
  adam.step();
  masters->write_back();
  Checkpoint checkpoint(folder);
  checkpoint.save({.model = net, .optimizer = adam, .masters = *masters});
  ASSERT_TRUE(checkpoint.restore({.model = other, .optimizer = other_adam, .masters = *other_masters}));
  for (size_t i = 0; i < masters->parameters().size(); ++i) {
    EXPECT_TRUE(other_masters->parameters()[i].equal(masters->parameters()[i])) << i;
    EXPECT_TRUE(other->parameters()[i].equal(net->parameters()[i])) << i;
  }
}

TEST_F(CheckpointTest, TwoAreKept) {
  Program program;
  Checkpoint checkpoint(folder);
  for (int step = 1; step <= 4; ++step) checkpoint.save(program.state(), {.step = step});
  EXPECT_EQ(entries_in(folder), 2u);
  EXPECT_THROW(Checkpoint(folder, {.keep = 1}), UsageError);
}

TEST_F(CheckpointTest, ANameOfOnesOwn) {
  Program program;
  Checkpoint checkpoint(folder);
  checkpoint.save_as("best", program.state(), {.step = 5});
  const std::string best = program.bits();
  program.run(2);
  for (int step = 6; step < 9; ++step) checkpoint.save(program.state(), {.step = step});
  Program other;
  EXPECT_EQ(checkpoint.restore_from("best", other.state()).step, 5);
  EXPECT_EQ(other.bits(), best);
  EXPECT_EQ(checkpoint.restore(other.state()).step, 8);
  EXPECT_THAT(message_of<UsageError>([&] { checkpoint.restore_from("step_7", other.state()); }),
              AllOf(HasSubstr("step_7"), HasSubstr("best")));
}

TEST_F(CheckpointTest, ADamagedOneIsPassedOver) {
  save_two();
  flip_byte(file(6, "optimizer.safetensors"), 700);
  Program program;
  EXPECT_EQ(Checkpoint(folder).restore(program.state()).step, 3);
  EXPECT_THAT(warnings, AllOf(HasSubstr("step_000000006"), HasSubstr("damaged")));
}

TEST_F(CheckpointTest, AllDamagedIsRefusedWithEachReason) {
  save_two();
  flip_byte(file(6, "model.safetensors"), 500);
  std::filesystem::remove(file(3, "rng.safetensors"));
  Program program;
  const std::string before = program.bits();
  EXPECT_THAT(message_of<UsageError>([&] { Checkpoint(folder).restore(program.state()); }),
              AllOf(HasSubstr("step_000000006/model.safetensors is damaged"),
                    HasSubstr("step_000000003/rng.safetensors is missing")));
  EXPECT_EQ(program.bits(), before);
}

TEST_F(CheckpointTest, AnotherFormatIsRefused) {
  save_two();
  for (const int step : {3, 6}) {
    std::string text = content_of(file(step, "manifest.json"));
    text.replace(text.find("\"format\": 1"), 11, "\"format\": 7");
    put(file(step, "manifest.json"), text);
  }
  Program program;
  EXPECT_THAT(message_of<UsageError>([&] { Checkpoint(folder).restore(program.state()); }),
              HasSubstr("it has format 7, but this version reads format 1"));
}

TEST_F(CheckpointTest, AnotherModelIsRefusedAndNothingChanges) {
  save_two();
  Program program(3, 8);
  program.run(2);
  const std::string before = program.bits();
  const io::TensorMap random = io::rng_state();
  EXPECT_THAT(message_of<UsageError>([&] { Checkpoint(folder).restore(program.state()); }),
              AllOf(HasSubstr("step_000000006"), HasSubstr("first.weight"), HasSubstr("[8, 3]"), HasSubstr("[6, 3]")));
  EXPECT_EQ(program.bits(), before);
  EXPECT_TRUE(io::rng_state()["cpu"].equal(random["cpu"]));
}

TEST_F(CheckpointTest, APartThatDoesNotFitChangesNothing) {
  save_two();
  Program program(3);
  program.run(2);
  const std::string before = program.bits();
  torch::optim::SGD sgd(program.net->parameters(), 0.1);
  Checkpoint checkpoint(folder);
  TrainingState other_optimizer = program.state();
  other_optimizer.optimizer = sgd;
  EXPECT_THAT(message_of<UsageError>([&] { checkpoint.restore(other_optimizer); }), HasSubstr("another optimizer"));
  TrainingState other_data = program.state();
  data::Loader small(data::Subset(points(), 0, 8), {.batch_size = 4, .shuffle = true, .seed = 5});
  other_data.loader = small;
  EXPECT_THAT(message_of<UsageError>([&] { checkpoint.restore(other_data); }), HasSubstr("40"));
  TrainingState more = program.state();
  more.extra.emplace_back(
      "plateau", [] { return "1"; }, [](const std::string&) {});
  EXPECT_THAT(message_of<UsageError>([&] { checkpoint.restore(more); }),
              AllOf(HasSubstr("no 'extra.plateau'"), HasSubstr("extra.scaler")));
  EXPECT_EQ(program.bits(), before);
}

TEST_F(CheckpointTest, ARefusalLeavesTheRandomNumbersToo) {
  Program program;
  TrainingState state = program.state();
  int loads = 0;
  const auto load = [&](const std::string&) {
    torch::rand({1});
    if (++loads == 1) throw UsageError("not understood");
  };
  state.extra.push_back({"other", [] { return "text"; }, load});
  Checkpoint(folder).save(state);
  torch::manual_seed(7);
  EXPECT_THROW(Checkpoint(folder).restore(state), UsageError);
  const torch::Tensor drawn = torch::rand({1});
  torch::manual_seed(7);
  EXPECT_TRUE(drawn.equal(torch::rand({1})));
}

TEST_F(CheckpointTest, LessMayBeRestoredThanWasSaved) {
  save_two();
  Program program(3);
  EXPECT_EQ(Checkpoint(folder).restore({.model = program.net}).step, 6);
}

TEST_F(CheckpointTest, RandomNumbersOfAnotherNumberOfRanksAreLeft) {
  save_two();
  io::CheckpointFolder files(folder);
  io::Snapshot snapshot = *files.read_newest();
  snapshot.manifest.world_size = 2;
  files.write("step_000000007", snapshot);
  Program program(11);
  const io::TensorMap random = io::rng_state();
  EXPECT_EQ(Checkpoint(folder).restore(program.state()).world_size, 2);
  EXPECT_TRUE(io::rng_state()["cpu"].equal(random["cpu"]));
  EXPECT_THAT(warnings, HasSubstr("saved by 2 ranks, now there are 1"));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOneBefore) {
  save_two();
  Program program;
  program.run(8);
  for (const bool async : {false, true}) {
    Checkpoint checkpoint(folder, {.async = async});
    const std::string message = message_of<SystemError>([&] {
      const FileSizeLimit limit(900);
      checkpoint.save(program.state(), {.step = 8});
      checkpoint.wait();
    });
    EXPECT_THAT(message, HasSubstr("checkpoint step_000000006 is kept"));
    EXPECT_EQ(checkpoint.restore(program.state()).step, 6);
  }
}

TEST_F(CheckpointTest, AFullDiskThatIsReal) {
  const SmallDisk disk(48 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount a small disk";
  folder = disk.path() / "out";
  Program program(1, 200);
  Checkpoint checkpoint(folder, {.keep = 0});
  int64_t step = 0;
  const std::string message = message_of<SystemError>([&] {
    while (step < 20) checkpoint.save(program.state(), {.step = step++});
  });
  const std::string kept = fmt::format("step_{:09}", step - 2);
  EXPECT_THAT(message, AllOf(HasSubstr("No space left"), HasSubstr(kept)));
  EXPECT_EQ(checkpoint.restore(program.state()).name, kept);
}

TEST_F(CheckpointTest, WhenASaveIsDue) {
  const Checkpoint often(folder, {.every = 5});
  EXPECT_TRUE(often.due(5) && often.due(10));
  EXPECT_FALSE(often.due(0) || often.due(6));
  EXPECT_FALSE(Checkpoint(folder).due(5));
  EXPECT_THROW(Checkpoint(folder, {.every = -1}), UsageError);
}

TEST_F(CheckpointTest, APreemptionIsRememberedAndTheSaveIsOnTheDisk) {
  Program program;
  Checkpoint checkpoint(folder, {.async = true});
  EXPECT_FALSE(checkpoint.preempted());
  ::raise(SIGTERM);
  EXPECT_TRUE(checkpoint.preempted());
  EXPECT_TRUE(checkpoint.preempted());
  checkpoint.save(program.state(), {.step = 4});
  EXPECT_EQ(io::CheckpointFolder(folder).list().size(), 1u);  // without wait()
}

TEST_F(CheckpointTest, SignalsAreLeftAloneUntilTheyAreAskedFor) {
  const auto handler = [] {
    struct sigaction action {};
    ::sigaction(SIGTERM, nullptr, &action);
    return action.sa_handler;
  };
  {
    Checkpoint checkpoint(folder);
    EXPECT_EQ(handler(), SIG_DFL);
    EXPECT_FALSE(checkpoint.preempted());
    EXPECT_NE(handler(), SIG_DFL);
  }
  EXPECT_EQ(handler(), SIG_DFL);
}

}  // namespace
}  // namespace trireme
