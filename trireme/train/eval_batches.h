// The batches of an evaluation or a prediction. Each sample is read once, on any number of ranks (eval_shard.h);
// samples that cannot be read are left out and counted.
//
//   EvalBatches batches(dataset, {.batch_size = 64}, ranks, {.name = "evaluation"});
//   batches.each([&](const data::Batch& batch) { … });          // called by every rank
//
// May be used again and again; the loader's threads stay. For one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/data/loader.h"
#include "trireme/train/bad_total.h"
#include "trireme/train/eval_shard.h"
#include "trireme/train/ranks.h"

namespace trireme::train {

struct EvalBatchesOptions {
  std::string name;                   ///< of the dataset, in messages
  std::optional<int64_t> limit = {};  ///< batches of each rank
};

class EvalBatches {
 public:
  /// Of the loader's options, shuffle and drop_last do not count.
  EvalBatches(const std::shared_ptr<const data::Dataset>& dataset, data::LoaderOptions options, const Ranks& ranks,
              const EvalBatchesOptions& more);

  /// Calls `use` with each batch of this rank. A batch whose samples are all bad has no rows. In the end the ranks
  /// compare what they could not read: UsageError on every rank when it is too much.
  void each(const std::function<void(const data::Batch&)>& use);
  const EvalShard& shard() const { return *shard_; }

 private:
  Ranks ranks_;
  std::shared_ptr<EvalShard> shard_;
  BadTotal bad_;
  std::optional<data::Loader> loader_;  // none on a rank without a batch
};

}  // namespace trireme::train
