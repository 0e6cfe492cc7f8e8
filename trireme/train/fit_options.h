// How to fit, evaluate and predict. The names and meanings are those of paddle.Model; what differs is said.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trireme/deploy/bundle/description.h"
#include "trireme/train/callback.h"
#include "trireme/train/owned.h"
#include "trireme/train/samples.h"

namespace trireme {

/// With a Loader, its own batch size, order and workers take the place of batch_size, drop_last, shuffle, num_workers.
struct FitOptions {
  train::Samples eval = {};     ///< evaluated after every eval_freq epochs, and after the last one
  int64_t batch_size = 1;       ///< per rank
  int64_t eval_batch_size = 0;  ///< 0: batch_size
  int64_t epochs = 1;
  int64_t eval_freq = 1;
  int64_t log_freq = 10;                ///< steps between two lines of progress, and between two looks at the loss
  std::filesystem::path save_dir = {};  ///< where ModelCheckpoint saves; empty: nowhere
  int64_t save_freq = 1;                ///< epochs between two checkpoints
  /// For exact resume: a checkpoint every save_freq epochs and when a signal ends the fit. A fit that finds one here
  /// goes on from it, with the bits of an unbroken fit. Empty: none.
  std::filesystem::path checkpoint_dir = {};
  int verbose = 2;  ///< 0 silent, 1 a bar, 2 lines, 3 lines with the cost of reading and computing
  bool drop_last = false;
  bool shuffle = true;
  int num_workers = 1;  ///< threads that prepare batches; 0: the training thread does
  std::vector<train::Owned<Callback>> callbacks = {};
  int64_t accumulate_grad_batches = 1;  ///< batches that make one step of the optimizer; only the last one is averaged
  std::optional<int64_t> num_iters = {};  ///< batches after which fit() returns, instead of `epochs`
};

struct EvaluateOptions {
  int64_t batch_size = 1;  ///< per rank
  int64_t log_freq = 10;
  int verbose = 2;
  int num_workers = 1;
  std::vector<train::Owned<Callback>> callbacks = {};
  std::optional<int64_t> num_iters = {};  ///< batches of each rank after which it ends
};

struct PredictOptions {
  int64_t batch_size = 1;  ///< per rank
  int64_t log_freq = 10;
  int verbose = 1;
  int num_workers = 1;
  std::vector<train::Owned<Callback>> callbacks = {};
};

struct TrainBatchOptions {
  bool update = true;  ///< false: only add to the gradients, on this rank
};

struct SaveOptions {
  bool training = true;                               ///< false: the weights alone, or what `inference` describes
  std::optional<bundle::Description> inference = {};  ///< a folder for inference: what goes in, names of the classes
};

struct LoadOptions {
  bool skip_mismatch = false;    ///< leave out tensors that are missing or of another shape, with a warning each
  bool reset_optimizer = false;  ///< do not read the optimizer's state
};

}  // namespace trireme
