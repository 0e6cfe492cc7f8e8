#include "trireme/train/eval_batches.h"

namespace trireme {

EvalBatches::EvalBatches(std::shared_ptr<const data::Dataset> dataset, data::LoaderOptions options, const Team& team,
                         const EvalBatchesOptions& more)
    : team_(team),
      share_(std::make_shared<Share>(std::move(dataset), options.batch_size, team.me(), more.limit)),
      bad_(share_, more.name) {
  options.shuffle = options.drop_last = false;
  if (share_->size() > 0) loader_.emplace(share_, options, RankInfo{}, team.device());
}

void EvalBatches::each(const std::function<void(const data::Batch&)>& use) {
  if (loader_) {
    loader_->set_epoch(0);
    for (const data::Batch& batch : *loader_) use(batch);
  }
  bad_.look(team_.me(), [this](const auto& mine) { return team_.numbers_of_all(mine); });
}

}  // namespace trireme
