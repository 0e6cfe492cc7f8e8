// One rank of the tests of Checkpoint: trireme launch -n 2 checkpoint_ranks CASE FOLDER [NAME=VALUE…]
//
//   train   two runs one after the other: Adam with checkpoints written at once, Momentum with asynchronous ones.
//           Prints a hash of all that they have learnt. Each rank notes the samples of each step in samples.RANK.
//             epochs=4 batch=4 samples=48 every=3
//             kill_rank=R kill_step=S   rank R gets SIGKILL in its S-th step, counted over both runs, in the first
//             start
//   wait    trains until it is preempted; prints the step of each rank
//   elastic trains until a file FOLDER/enough is there, or until it is preempted; then it saves. Each rank notes the
//           samples of each step in FOLDER/samples.ATTEMPT.RANK. batch=4 samples=48 every=3
//   chaos   one run that tests/faults/chaos_test.py disturbs, with asynchronous checkpoints. It ends with the epoch in
//           which FOLDER/enough is there, and prints a hash as `train` does. epochs=4 batch=4 samples=48 every=3
//   refuse  errors of rank 0 alone, and what every rank says about them
//   faulty  one run that tests/faults breaks in its 8th step, its second checkpoint or before its end (fault_point.h).
//           Prints a hash as `train` does. epochs=4 batch=4 samples=48 every=3
#include <fmt/core.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <map>

#include "../faults/fault_point.h"
#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/text.h"
#include "trireme/data/loader.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/io/checkpoint/checkpoint.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/rng_state.h"
#include "trireme/optim/optimizers.h"
#include "trireme/parallel/data_parallel.h"

namespace trireme::test {
namespace {

using Settings = std::map<std::string, int64_t>;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width = 16) {
    first = register_module("first", torch::nn::Linear(4, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    last = register_module("last", torch::nn::Linear(width, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(torch::dropout(torch::relu(norm(first(x))), 0.3, is_training()));
  }
  torch::nn::Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(Net);

void say(const std::string& line) {
  std::cout << line << "\n" << std::flush;
}

// The target is the sample's own number.
data::TensorDataset numbered(int64_t samples) {
  const torch::Tensor number = torch::arange(samples, torch::kFloat);
  return {torch::stack({number.sin(), number.cos(), (number * 2).sin(), (number * 3).cos()}, 1), number};
}

uint64_t hash_of(const io::TensorMap& tensors, uint64_t hash) {
  for (const auto& item : tensors) {
    const torch::Tensor tensor = item.value().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
    for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;  // FNV-1a
  }
  return hash;
}

struct Job {
  World world = init_parallel_env();
  std::filesystem::path folder;
  Settings settings;
  int64_t steps = 0;  // of this process, in all runs
  std::ofstream seen = {};

  void note_samples(const std::string& run, const Progress& at, const torch::Tensor& targets) {
    seen << fmt::format("{} {} {}", run, at.step, at.epoch);
    for (int64_t i = 0; i < targets.size(0); ++i) seen << fmt::format(" {}", targets[i].item<float>());
    seen << std::endl;
  }
  void maybe_die() {
    ++steps;
    if (settings["kill_rank"] == world.rank() && settings["kill_step"] == steps && world.env().restart_count == 0)
      ::kill(::getpid(), SIGKILL);
  }
};

void say_learnt(const Job& job, const std::string& name, const TrainingState& state, const Progress& at) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto& [group, tensors] : detail::take(state).tensors) hash = hash_of(tensors, hash);
  say(fmt::format("rank {} {} step {} learnt {:016x} random {:016x}", job.world.rank(), name, at.step, hash,
                  hash_of(io::rng_state(), 1)));
}

// Whether the file is there is rank 0's to say, as it is for a checkpoint.
bool is_enough(const Job& job) {
  torch::Tensor enough = torch::zeros({1});
  if (job.world.rank() == 0 && std::filesystem::exists(job.folder / "enough")) enough += 1;
  broadcast(enough, 0);
  return enough.item<float>() > 0;
}

template <typename MakeOptimizer>
void train(Job& job, const std::string& name, bool async, MakeOptimizer make_optimizer) {
  torch::manual_seed(static_cast<uint64_t>(10 + job.world.rank()));  // other dropout on each rank
  DataParallel model(Net(), job.world);
  auto optimizer = make_optimizer(model->parameters());
  data::Loader loader(numbered(job.settings["samples"]),
                      {.batch_size = job.settings["batch"], .shuffle = true, .seed = 3}, job.world);
  const auto folder = job.world.rank() == 0 ? job.folder / name : "/nowhere";  // the others need no disk
  Checkpoint checkpoint(folder, job.world, {.every = job.settings["every"], .async = async});
  const TrainingState state{.model = model, .optimizer = optimizer, .loader = loader};

  const Restored restored = checkpoint.restore(state);
  if (job.world.rank() == 0) say(fmt::format("{} starts at {} from '{}'", name, restored.step, restored.name));
  Progress at = restored;
  for (bool enough = false; !enough && at.epoch < job.settings["epochs"]; ++at.epoch) {
    for (auto& [x, y] : loader) {
      optimizer.zero_grad();
      torch::mse_loss(model(x).flatten(), y.cos()).backward();
      job.maybe_die();  // its peers have this step's gradients already, or wait for them
      optimizer.step();
      ++at.step;
      job.note_samples(name, at, y);
      const bool stop = checkpoint.preempted();
      if (stop || checkpoint.due(at.step)) checkpoint.save(state, at);
      if (stop) return;  // only in `chaos`, whose nodes are lost
    }
    enough = is_enough(job);
  }
  checkpoint.wait();
  say_learnt(job, name, state, at);
}

void train_both(Job& job) {
  job.seen.open(fmt::format("samples.{}", job.world.rank()), std::ios::app);
  train(job, "adam", false, [](auto parameters) { return optim::Adam(parameters, {.lr = 0.01}); });
  train(job, "momentum", true, [](auto parameters) { return optim::Momentum(parameters, {.lr = 0.01}); });
}

void chaos(Job& job) {
  train(job, "chaos", true, [](auto parameters) { return optim::Adam(parameters, {.lr = 0.01}); });
}

void wait(Job& job) {
  DataParallel model(Net(), job.world);
  torch::optim::SGD sgd(model->parameters(), 0.01);
  data::Loader loader(numbered(48), {.batch_size = 4, .shuffle = true}, job.world);
  Checkpoint checkpoint(job.folder, job.world, {.async = true});
  const TrainingState state{.model = model, .optimizer = sgd, .loader = loader};
  Progress at = checkpoint.restore(state);
  say(fmt::format("rank {} starts at {}", job.world.rank(), at.step));
  for (bool stop = false; !stop && at.step < 1000000; ++at.epoch)
    for (auto& [x, y] : loader) {
      sgd.zero_grad();
      torch::mse_loss(model(x).flatten(), y.cos()).backward();
      sgd.step();
      ++at.step;
      stop = checkpoint.preempted();
      if (at.step % 10 == 0) std::ofstream(fmt::format("pid.{}", job.world.rank())) << ::getpid() << std::endl;
      if (stop) break;
    }
  checkpoint.save(state, at);
  say(fmt::format("rank {} ends at {}", job.world.rank(), at.step));
}

void elastic(Job& job) {
  job.seen.open(job.folder / fmt::format("samples.{}.{}", job.world.env().restart_count, job.world.rank()));
  DataParallel model(torch::nn::Linear(4, 1), job.world);  // no batch norm: a batch may be one sample
  optim::Momentum optimizer(model->parameters(), {.lr = 0.01});
  data::Loader loader(numbered(job.settings["samples"]),
                      {.batch_size = job.settings["batch"], .shuffle = true, .seed = 3}, job.world);
  Checkpoint checkpoint(job.folder / "out", job.world, {.every = job.settings["every"]});
  const TrainingState state{.model = model, .optimizer = optimizer, .loader = loader};
  Progress at = checkpoint.restore(state);
  for (bool stop = false; !stop; ++at.epoch)
    for (auto& [x, y] : loader) {
      optimizer.zero_grad();
      torch::mse_loss(model(x).flatten(), y.cos()).backward();
      optimizer.step();
      ++at.step;
      job.note_samples(fmt::format("{}", job.world.size()), at, y);
      stop = checkpoint.preempted() || is_enough(job);
      if (stop || checkpoint.due(at.step)) checkpoint.save(state, at);
      if (stop) return;
    }
}

void faulty(Job& job, const FaultPoint& faults) {
  constexpr int64_t kStep = 7, kSave = 6;  // kStep counts from 0
  torch::manual_seed(static_cast<uint64_t>(10 + job.world.rank()));
  DataParallel model(Net(), job.world);
  optim::Adam optimizer(model->parameters(), {.lr = 0.01});
  data::Loader loader(numbered(job.settings["samples"]),
                      {.batch_size = job.settings["batch"], .shuffle = true, .seed = 3}, job.world);
  Checkpoint checkpoint(job.folder / "out", job.world, {.every = job.settings["every"]});
  Progress at;
  TrainingState state{.model = model, .optimizer = optimizer, .loader = loader};
  const auto in_save = [&] {  // of rank 0 alone
    if (at.step == kSave) faults.at("checkpoint");
    return std::string();
  };
  state.extra.emplace_back("fault", in_save, [](const std::string&) {});
  const Restored restored = checkpoint.restore(state);
  at = restored;
  const torch::Tensor large = torch::ones({1 << 16});
  for (; at.epoch < job.settings["epochs"]; ++at.epoch)
    for (auto& [x, y] : loader) {
      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(model(x).flatten(), y.cos());
      if (at.step == kStep) faults.at("step");
      loss.backward();
      optimizer.step();
      Work work = all_reduce_async(large, ReduceOp::max);
      if (at.step == kStep) faults.at("collective");
      work.wait();
      if (restored && at.step == restored.step) faults.note("resumed", fmt::format("{}", job.world.rank()));
      ++at.step;
      if (checkpoint.due(at.step)) checkpoint.save(state, at);
    }
  checkpoint.wait();
  say_learnt(job, "faulty", state, at);
  faults.at("end");
}

template <typename Work>
void expect_error(const Job& job, const std::string& what, Work work) {
  try {
    work();
    say(fmt::format("rank {} {}: no error", job.world.rank(), what));
  } catch (const UsageError& error) {
    say(fmt::format("rank {} {}: usage {}", job.world.rank(), what, join(split(error.what(), '\n'), " | ")));
  } catch (const SystemError& error) {
    say(fmt::format("rank {} {}: system {} {}", job.world.rank(), what, error.number(), error.what()));
  }
}

void refuse(Job& job) {
  const bool first = job.world.rank() == 0;
  DataParallel model(Net(), job.world), other(Net(17), job.world);
  torch::optim::SGD sgd(model->parameters(), 0.01);
  const TrainingState state{.model = model, .optimizer = sgd};
  Checkpoint checkpoint(job.folder, job.world);
  const auto file = [&](int step) { return job.folder / fmt::format("step_{:09}", step) / "model.safetensors"; };
  for (const int step : {1, 2}) checkpoint.save(state, {.step = step});

  expect_error(job, "step", [&] { checkpoint.save(state, {.step = 3 + job.world.rank()}); });
  expect_error(job, "model", [&] { checkpoint.restore({.model = other}); });
  const auto spectral = std::make_shared<NetImpl>();
  if (first) spectral->register_buffer("spectrum", torch::zeros({2}, torch::kComplexDouble));
  expect_error(job, "type", [&] { checkpoint.save({.model = *spectral}, {.step = 3}); });
  for (const bool async : {false, true})
    expect_error(job, async ? "later" : "disk", [&] {
      Checkpoint again(job.folder, job.world, {.async = async});
      std::optional<FileSizeLimit> limit;
      if (first) limit.emplace(500);
      again.save(state, {.step = 3});
      again.wait();
    });
  if (first) flip_byte(file(2), 700);
  say(fmt::format("rank {} falls back to {}", job.world.rank(), checkpoint.restore(state).name));
  if (first) flip_byte(file(1), 700);
  expect_error(job, "damaged", [&] { checkpoint.restore(state); });
  const torch::Tensor one = torch::ones({1});
  all_reduce(one);  // the ranks are still together
  say(fmt::format("rank {} goes on with {} ranks", job.world.rank(), one.item<float>()));
}

int run(int argc, char** argv) {
  const FaultPoint faults;
  faults.at("start-up");
  Job job{.folder = argv[2],
          .settings = {{"epochs", 4}, {"batch", 4}, {"samples", 48}, {"every", 3}, {"kill_rank", -1}}};
  for (int i = 3; i < argc; ++i) {
    const std::vector<std::string> parts = split(argv[i], '=');
    job.settings[parts.at(0)] = std::stoll(parts.at(1));
  }
  const std::string what = argv[1];
  if (what == "train") train_both(job);
  if (what == "chaos") chaos(job);
  if (what == "wait") wait(job);
  if (what == "elastic") elastic(job);
  if (what == "refuse") refuse(job);
  if (what == "faulty") faulty(job, faults);
  return 0;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) try {
  return argc < 3 ? 2 : trireme::test::run(argc, argv);
} catch (const trireme::Error& error) {
  std::cerr << error.what() << std::endl;
  return error.exit_code();
}
