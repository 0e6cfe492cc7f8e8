// trainer_ranks overflow CONFIG: two steps in fp16 with gradients that stay on their rank; in the second, rank 1's
// overflow.
// trainer_ranks three_ways CONFIG: the same training by Trainer, by Model::fit and by a loop over Step; prints a
// checksum of the weights of each.
// trainer_ranks uneven CONFIG LOADER LIST: a training in which rank 1 has another list of pictures for
// DataLoader.LOADER; prints the error of each rank.
#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <limits>

#include "trireme/core/error.h"
#include "trireme/nn/losses.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/model.h"
#include "trireme/train/trainer/make_dataset.h"
#include "trireme/train/trainer/make_model.h"
#include "trireme/train/trainer/make_optimizer.h"
#include "trireme/train/trainer/make_step.h"
#include "trireme/train/trainer/ready_network.h"
#include "trireme/train/trainer/saver.h"
#include "trireme/train/trainer/trainer.h"

using namespace trireme;
using namespace trireme::trainer;

namespace {

struct Outcome {
  bool stepped, changed;
};

Outcome take_step(const trainer::RoleModels& net, train::Step& step, const train::Ranks& ranks, float factor) {
  const NoSync local(ranks.sync());
  const torch::Tensor weight = net.trained()->parameters()[0];
  const torch::Tensor before = weight.detach().clone();
  step([&] { return (weight * factor).sum(); });
  return {step.update() == train::Update::done, !weight.equal(before)};
}

void overflow(const std::string& file) {
  const config::TrainConfig config = config::load(file, {"AMP.use_amp=True", "AMP.dtype=float16"});
  train::Ranks ranks = ready_ranks(config.global);
  const trainer::RoleModels net = make_network(config.arch);
  ranks.share(net.trained(), net.frozen());
  const auto optimizer = make_optimizer(config, *net.trained());
  train::Step step = make_step(config, net, ranks, *optimizer);
  const Outcome good = take_step(net, step, ranks, 1);
  const double scale = step.scaler().current_scale();
  const Outcome bad = take_step(net, step, ranks, ranks.me().rank == 1 ? std::numeric_limits<float>::infinity() : 1);
  std::cout << fmt::format("rank {}: stepped {:d}, then {:d}; changed {:d}, then {:d}; scale {}, then {}\n",
                           ranks.me().rank, good.stepped, bad.stepped, good.changed, bad.changed, scale,
                           step.scaler().current_scale())
            << std::flush;
}

// --- one training, three ways

constexpr double kClip = 0.5;
constexpr int64_t kAccumulate = 2;
constexpr double kDecay = 0.9;

config::TrainConfig three_ways_config(const std::string& file) {
  return config::load(file, {"DataLoader.Train.sampler.batch_size=7", "Global.output_dir=three",
                             "Global.eval_during_train=False", fmt::format("Optimizer.clip_norm={}", kClip),
                             fmt::format("EMA.decay={}", kDecay), fmt::format("Global.update_freq={}", kAccumulate)});
}

/// As the trainer starts it.
models::ClassifierPtr first_net(const config::TrainConfig& config, int rank) {
  torch::manual_seed(static_cast<uint64_t>(config.global.seed + rank));
  return make_network(config.arch).main();
}

data::Loader loader_of(const config::TrainConfig& config, const World& world) {
  const MadeDataset made = make_dataset(
      *config.train, {.class_num = config.arch.class_num, .image_shape = config.global.image_shape, .labels = true});
  return data::Loader(made.samples, make_loader_options(*config.train, static_cast<uint64_t>(config.global.seed)),
                      world);
}

torch::Tensor smooth_loss(const torch::Tensor& output, const torch::Tensor& label) {
  return nn::ce_loss(output, label, {.epsilon = 0.1});
}

void show(const std::string& how, const torch::nn::Module& net, const World& world) {
  std::string bytes;
  for (const torch::Tensor& parameter : net.parameters()) {
    const torch::Tensor flat = parameter.detach().cpu().contiguous();
    bytes.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  }
  std::cout << fmt::format("rank {} {}: {:x}\n", world.rank(), how, std::hash<std::string>()(bytes)) << std::flush;
}

void by_trainer(const config::TrainConfig& config, const World& world) {
  Trainer(config).train();
  const auto net = first_net(config, 0);
  load_weights(*net, (output_folder(config) / "latest").string(), {.what = "latest"});
  show("trainer", *net, world);
}

void by_model(const config::TrainConfig& config, const World& world) {
  const auto net = first_net(config, world.rank());
  Model model(net);
  model.prepare({.optimizer = [&](const auto&) { return make_optimizer(config, *net); },
                 .loss = smooth_loss,
                 .clip_norm = kClip,
                 .ema_decay = kDecay});
  model.fit(loader_of(config, world),
            {.epochs = config.global.epochs, .verbose = 0, .accumulate_grad_batches = kAccumulate});
  show("model", *net, world);
}

void by_loop(const config::TrainConfig& config, const World& world) {
  DataParallel model(first_net(config, world.rank()), world);
  const auto optimizer = make_optimizer(config, *model.module());
  train::Step step(model, *optimizer,
                   {.loss = smooth_loss, .clip_norm = kClip, .accumulate = kAccumulate, .ema_decay = kDecay});
  data::Loader loader = loader_of(config, world);
  for (int64_t epoch = 0; epoch < config.global.epochs; ++epoch) {
    int64_t left = loader.size();
    for (auto& [x, y] : loader) step(x, y, --left == 0 ? train::BatchOptions{.update = true} : train::BatchOptions{});
  }
  show("loop", *model.module(), world);
}

void three_ways(const std::string& file) {
  const config::TrainConfig config = three_ways_config(file);
  const World world = init_parallel_env();
  by_trainer(config, world);
  by_model(config, world);
  by_loop(config, world);
}

// --- another dataset on one rank

void uneven(const std::string& file, const std::string& loader, const std::string& list) {
  const World world = init_parallel_env();
  std::vector<std::string> overrides;
  if (world.rank() == 1) overrides.push_back(fmt::format("DataLoader.{}.dataset.cls_label_path={}", loader, list));
  const config::TrainConfig config = config::load(file, overrides);
  try {
    Trainer(config).train();
  } catch (const UsageError& error) {
    std::cerr << fmt::format("rank {}: {}\n", world.rank(), error.what()) << std::flush;
  }
}

}  // namespace

int main(int, char** argv) try {
  const std::string what = argv[1];
  if (what == "overflow") overflow(argv[2]);
  if (what == "three_ways") three_ways(argv[2]);
  if (what == "uneven") uneven(argv[2], argv[3], argv[4]);
} catch (const Error& error) {
  std::cerr << error.what() << std::endl;
  return error.exit_code();
}
