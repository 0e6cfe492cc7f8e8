#include "trireme/train/eval_batches.h"

namespace trireme::train {

namespace {

const std::shared_ptr<const data::Dataset>& checked(const std::shared_ptr<const data::Dataset>& dataset,
                                                    const Ranks& ranks, const std::string& name) {
  ranks.require_equal_samples(name, dataset ? dataset->size() : 0);
  return dataset;
}

}  // namespace

EvalBatches::EvalBatches(const std::shared_ptr<const data::Dataset>& dataset, data::LoaderOptions options,
                         const Ranks& ranks, const EvalBatchesOptions& more)
    : ranks_(ranks),
      shard_(
          std::make_shared<EvalShard>(checked(dataset, ranks, more.name), options.batch_size, ranks.me(), more.limit)),
      bad_(shard_, more.name) {
  options.shuffle = options.drop_last = false;
  if (shard_->size() > 0) loader_.emplace(shard_, options, RankInfo{}, ranks.device());
}

void EvalBatches::each(const std::function<void(const data::Batch&)>& use) {
  if (loader_) {
    loader_->set_epoch(0);
    for (const data::Batch& batch : *loader_) use(batch);
  }
  bad_.look(ranks_.me(), [this](const auto& mine) { return ranks_.numbers_of_all(mine); });
}

}  // namespace trireme::train
