// What the ranks of a pipeline tell each other before a batch. A call that one of them refuses, or makes with other
// options, is an error on all of them, and none waits for another.
//
// Reports go along the pipe. Pipelines beside each other on the data axis (replicas) then compare: if one of them
// refuses, or trains other parameters, that is an error on all.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/optim/amp.h"
#include "trireme/parallel/pipeline/pipeline.h"
#include "trireme/parallel/pipeline/stages.h"

namespace trireme::parallel {

/// A call of Pipeline, on this rank.
struct BatchCall {
  enum class Kind { train, evaluate, predict };
  Kind kind;
  const BatchTensors& inputs;
  const BatchTensors& targets;
  const optim::GradScaler* scaler = nullptr;
  double clip_norm = 0;
  const torch::optim::Optimizer* optimizer = nullptr;
};

/// The size of the first dimension. -1: there are no tensors; -2: they have different numbers of rows.
int64_t rows_of(const std::vector<torch::Tensor>& tensors);

class BatchReports {
 public:
  using Stages = std::vector<std::shared_ptr<StageModule>>;

  /// What all ranks of the pipe know of a batch that none of them refuses.
  struct Agreed {
    int64_t rows = 0;
    uint64_t signature = 0;  ///< of shapes and types, and of `trained`
    uint64_t trained = 0;    ///< which parameters of all stages are
  };

  /// `stages` are this rank's. `data` may be no group.
  BatchReports(const Group& pipe, const Group& data, const Stages& stages)
      : pipe_(pipe), data_(data), stages_(stages) {}

  /// Called by every rank of the pipe. `problem`: why this rank refuses, or empty. `exchanges`: not under no_sync().
  /// UsageError on every rank, or on none.
  Agreed agree_along_pipe(const BatchCall& batch, const std::string& problem, bool exchanges, int micro_batches);

  enum class Replicas { alike, differ };
  /// Called by every rank of all replicas. If `check` throws a UsageError on one, all throw. `replica`, called after
  /// `check`, gives a number that must be the same in all replicas.
  Replicas refuse_along_data(const std::function<void()>& check, const std::function<uint64_t()>& replica = {}) const;
  /// Called by every rank of replicas that differ: a UsageError on each. The ranks whose stage differs name what.
  void refuse_other_replicas(BatchCall::Kind kind) const;

 private:
  std::vector<std::string> call_and_frozen(BatchCall::Kind kind) const;

  const Group pipe_;
  const Group data_;
  const Stages stages_;
  std::array<uint64_t, 3> calls_{};  // of each kind
};

}  // namespace trireme::parallel
