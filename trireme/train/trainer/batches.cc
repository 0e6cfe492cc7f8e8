#include "trireme/train/trainer/batches.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/train/trainer/memory.h"

namespace trireme::trainer {
namespace {

DataNeeds needs_of(const config::TrainConfig& config, bool labels) {
  return {.class_num = config.arch.class_num, .image_shape = config.global.image_shape, .labels = labels};
}

const config::DataLoader& need_train(const config::TrainConfig& config) {
  config.require_loader("Train", "train on");
  return *config.train;
}

}  // namespace

EndlessLoader::EndlessLoader(const config::DataLoader& config, const MadeDataset& dataset, uint64_t seed, RankInfo me,
                             torch::Device device)
    : loader_(dataset.samples, make_loader_options(config, seed), me, device), labelled_(dataset.labelled) {
  const int64_t shard = (dataset.samples->size() + me.size - 1) / me.size;
  require_memory(config, {std::min(config.sampler.batch_size, shard), dataset.sample_bytes});
  if (loader_.size() == 0)
    config.sampler.node.fail(
        "{} samples on {} ranks make no batch of {}, and drop_last leaves out what is smaller; make it smaller",
        dataset.samples->size(), me.size, config.sampler.batch_size);
}

void EndlessLoader::start(int64_t epoch, int64_t iters) {
  const int64_t passes = (iters + loader_.size() - 1) / loader_.size();
  at_.reset();
  loader_.set_epoch(epoch * passes);
}

int64_t EndlessLoader::go_on() {
  at_.emplace(loader_.begin());
  taken_ = false;
  return *at_ == data::Loader::end() ? 0 : loader_.plan()->steps();
}

const data::Batch& EndlessLoader::next() {
  if (at_ && taken_) ++*at_;
  taken_ = true;
  // Twice: nothing may be left of the pass in which a checkpoint was saved; the next one has batches.
  for (int i = 0; i < 2; ++i)
    if (!at_ || *at_ == data::Loader::end()) at_.emplace(loader_.begin());
  return **at_;
}

Batches::Batches(const config::TrainConfig& config, bool need_labels, RankInfo me, torch::Device device)
    : labelled_(need_train(config), make_dataset(need_train(config), needs_of(config, need_labels)),
                static_cast<uint64_t>(config.global.seed), me, device),
      whole_passes_(!config.global.iter_per_epoch),
      iters_(config.global.iter_per_epoch.value_or(labelled_.batches())) {
  if (config.unlabel_train)
    unlabelled_.emplace(*config.unlabel_train, make_dataset(*config.unlabel_train, needs_of(config, false)),
                        static_cast<uint64_t>(config.global.seed) + 1, me, device);
}

void Batches::start(int64_t epoch) {
  labelled_.start(epoch, iters_);
  if (unlabelled_) unlabelled_->start(epoch, iters_);
}

int64_t Batches::go_on(int64_t iter) {
  return whole_passes_ ? iters_ - labelled_.go_on() : std::min(iter, iters_);
}

TrainBatch Batches::next() {
  const data::Batch& batch = labelled_.next();
  TrainBatch all{batch.data, batch.target, labelled_.labelled() ? batch.data.size(0) : 0};
  if (unlabelled_) all.images = torch::cat({batch.data, unlabelled_->next().data});
  return all;
}

}  // namespace trireme::trainer
