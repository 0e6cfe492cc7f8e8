#include "trireme/train/eval_batches.h"

namespace trireme::train {

EvalBatches::EvalBatches(const std::shared_ptr<const data::Dataset>& dataset, data::LoaderOptions options,
                         const Ranks& ranks, const EvalBatchesOptions& more)
    : ranks_(ranks),
      shard_(std::make_shared<EvalShard>(dataset, options.batch_size, ranks.me(), more.limit)),
      bad_(shard_, more.name) {
  ranks.require_equal_samples(more.name, dataset->size());
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
