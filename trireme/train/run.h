// Where a fit, an evaluation or a prediction stands: what callbacks see, and how they ask for its end.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trireme/core/rank_info.h"
#include "trireme/train/place.h"
#include "trireme/train/results.h"

namespace trireme {

class Model;

struct Run : train::Place {
  enum class Mode { train, eval, predict };

  Run(Model& model_, RankInfo me_, Mode mode_ = Mode::train) : model(model_), me(me_), mode(mode_) {}

  Model& model;
  RankInfo me;
  Mode mode;

  int64_t samples = 0;     ///< in the dataset
  int64_t batch_size = 1;  ///< a rank's
  bool has_eval = false;   ///< evaluations come with this fit
  int64_t log_freq = 10;
  int verbose = 2;
  std::filesystem::path save_dir = {};  ///< empty: nothing is saved

  /// Over all ranks, and the same on all of them. In training: the averages of the epoch so far, as at the last logged
  /// step. In an evaluation: complete in on_eval_end(), empty before.
  Results logs = {};
  bool logged = false;        ///< this step is one of every log_freq, or the epoch's last: `logs` is fresh
  double reader_seconds = 0;  ///< spent waiting for batches, since the epoch began
  double batch_seconds = 0;   ///< spent on everything else

  /// Set by a callback of any rank. Training ends, on all ranks alike, at the next logged step or epoch's end.
  bool stop = false;
  /// In on_train_end(): the training ends early because of this signal (SIGINT, SIGTERM), and the process after it.
  int signal = 0;

  /// Whether this rank is the one that prints and writes.
  bool is_main() const { return me.rank == 0; }
};

}  // namespace trireme
