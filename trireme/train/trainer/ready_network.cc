#include "trireme/train/trainer/ready_network.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>

#include "trireme/core/env.h"
#include "trireme/parallel/sync_batch_norm.h"
#include "trireme/train/trainer/make_model.h"
#include "trireme/train/trainer/make_step.h"
#include "trireme/train/trainer/saver.h"

namespace trireme::trainer {
namespace {

void seed(const config::TrainConfig& config, const train::Ranks& ranks) {
  torch::manual_seed(static_cast<uint64_t>(config.global.seed + ranks.me().rank));
}

/// What PaddleClas can do and Trireme cannot is said before anything is made.
void require_classification(const config::Global& global) {
  if (global.use_multilabel) global.node.at("use_multilabel").fail("several labels a picture are not supported");
  if (global.eval_mode != "classification")
    global.node.at("eval_mode").fail("'{}' is not supported; only classification is", global.eval_mode);
  if (!global.train_mode.empty() && global.train_mode != "classification")
    global.node.at("train_mode").fail("'{}' is not supported; leave the key out", global.train_mode);
}

/// UsageError for axes that the ranks do not fill, and for those that no classifier can be cut along.
std::optional<ShardedOptions> sharding(const config::Parallel& parallel, const config::Arch& arch, int ranks) {
  if (parallel.pipe > 1 || parallel.model > 1)
    parallel.node.at(parallel.pipe > 1 ? "pipe" : "model")
        .fail(
            "{} cannot be cut into {} by a configuration, only its data axis can be split (shard: parameters). A "
            "program can: Pipeline takes models::resnet_layers() and models::gpt_layers()",
            arch.name, parallel.pipe > 1 ? "stages" : "parts of layers");
  if (parallel.data > 0 && parallel.data != ranks)
    parallel.node.at("data").fail("the data axis has {} ranks, but {} {} started; leave the key out, or launch as many",
                                  parallel.data, ranks, ranks == 1 ? "was" : "were");
  if (parallel.shard == "none") return std::nullopt;
  return ShardedOptions{.shard = parallel.shard == "optimizer"   ? Shard::optimizer
                                 : parallel.shard == "gradients" ? Shard::gradients
                                                                 : Shard::parameters};
}

bool syncs_batch_norm(const config::Arch& arch) {
  return arch.use_sync_bn || std::any_of(arch.models.begin(), arch.models.end(),
                                         [](const auto& model) { return model.arch.use_sync_bn && !model.frozen; });
}

}  // namespace

void choose_convolutions(c10::Device device) {
  if (device.is_cuda()) at::globalContext().setBenchmarkCuDNN(env::get("FLAGS_cudnn_exhaustive_search") != "0");
}

train::Ranks ready_ranks(const config::Global& global) {
  if (global.device == config::Device::cpu) return train::Ranks(torch::kCPU);
  train::Ranks ranks;
  if (!ranks.device().is_cuda())
    global.node.at("device").fail(
        "rank {} has no GPU that could be used (`trireme doctor` tells why); to train on the CPU: -o Global.device=cpu",
        ranks.me().rank);
  choose_convolutions(ranks.device());
  return ranks;
}

RoleModels ready_to_train(const config::TrainConfig& config, train::Ranks& ranks, InitialWeights initial) {
  require_classification(config.global);
  const std::optional<ShardedOptions> shard = sharding(config.global.parallel, config.arch, ranks.me().size);
  seed(config, ranks);
  const bool named = !config.global.pretrained_model.empty();
  RoleModels net = make_network(config.arch, {.own_weights = named || initial.own_weights});
  if (named) load_weights(*net.trained(), config.global.pretrained_model, {.what = "Global.pretrained_model"});
  net.to(ranks.device());
  const AmpOptions amp = amp_of(config.amp, ranks.device().type());
  if (amp.level == AmpLevel::O2) optim::lower_precision(*net.trained(), amp.dtype);
  if (syncs_batch_norm(config.arch)) convert_sync_batch_norm(*net.trained(), ranks.group());
  ranks.share(net.trained(), net.frozen(), shard);
  return net;
}

RoleModels ready_to_evaluate(const config::TrainConfig& config, const train::Ranks& ranks) {
  require_classification(config.global);
  const config::Global& global = config.global;
  const std::string weights = global.pretrained_model.empty() ? global.checkpoints : global.pretrained_model;
  if (weights.empty() && !config.arch.main().pretrained.wanted)
    global.node.fail("which weights are to be evaluated? name them by -o Global.pretrained_model={}",
                     (output_folder(config) / "best_model").string());
  seed(config, ranks);
  RoleModels net = make_network(config.arch, {.only_main = true, .own_weights = !weights.empty()});
  if (!weights.empty()) load_weights(*net.main(), weights, {.what = "Global.pretrained_model", .new_classes = false});
  net.to(ranks.device());
  return net;
}

}  // namespace trireme::trainer
