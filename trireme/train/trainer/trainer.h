// `trireme train -c CONFIG`: all parts of a configuration, put together and run.
//
//   config::TrainConfig config = config::load("ResNet50.yaml", {"Global.epochs=2"});
//   Trainer(config, {.resume = "auto"}).train();
//   Results results = evaluate(config);                               // `trireme eval`
//
// Each part is made by a maker of its own (make_….h) and plugs in here; other ranks are seen in Ranks only. Started
// alone it trains alone; under `trireme launch` with all ranks. Errors are UsageErrors with file and line, thrown
// before the first step where that is possible. For one thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/train_config.h"
#include "trireme/io/format/events.h"
#include "trireme/optim/schedules.h"
#include "trireme/train/loop.h"
#include "trireme/train/trainer/batches.h"
#include "trireme/train/trainer/evaluator.h"
#include "trireme/train/trainer/make_schedule.h"
#include "trireme/train/trainer/saver.h"

namespace trireme::trainer {

struct TrainerOptions {
  std::string resume = {};  ///< a checkpoint's folder, or "auto": the newest of output_dir. Empty: Global.checkpoints
  int64_t file_batch_size = 0;  ///< per rank, as the file had it before overrides; 0: as the configuration has it
  std::string resume_command = "--resume auto";  ///< what goes on with this training, for a message
};

class Trainer : private train::Training {
 public:
  explicit Trainer(config::TrainConfig config, const TrainerOptions& options = {});

  /// All epochs that are not done yet. A SIGINT, SIGTERM or SIGUSR1 to any rank ends it after the step at hand, with a
  /// checkpoint from which the next run goes on; a second SIGINT or SIGTERM ends the process at once. An epoch is saved
  /// before it is evaluated; a run that was killed in between evaluates it first when it goes on.
  void train();
  /// The signal, to whichever rank, that ended train() early; 0: none.
  int stopped_by() const { return loop_ ? loop_->signal() : 0; }

 private:
  int64_t begin_epoch() override;
  train::Meter::Batch train_batch(const train::BatchOptions& options) override;
  void end_batch() override;
  void end_epoch() override;
  [[noreturn]] void refuse(const train::BadLoss& bad) const override;

  void resume(const std::string& from);
  bool evaluates(int64_t epoch) const;
  void evaluate();
  Results evaluate_weights(WeightsKind kind);
  bool prints(int64_t step) const;
  bool save_is_due() const;
  void save_latest();
  void draw(const std::string& prefix, const Results& results);
  void log_stop() const;
  void log_overflow();

  double rate_at(int64_t step) const;
  int64_t steps_per_epoch() const;
  std::string memory_text() const;
  AmpOptions eval_amp() const;

  config::TrainConfig config_;
  std::string resume_command_;
  train::Ranks ranks_;
  std::optional<OwnerLock> lock_;  // of rank 0
  Losses losses_;
  RoleModels net_;
  Batches batches_;
  std::vector<train::BadTotal> bad_;  // of each of its datasets
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  train::Step step_;
  optim::Schedule schedule_;
  RoleMetrics metrics_;
  std::unique_ptr<Evaluator> evaluator_;     // null: none during training
  std::unique_ptr<io::EventWriter> curves_;  // null: none
  Saver saver_;
  SavedProgress progress_;
  Place place_;
  int64_t first_ = 0;  // the step with which this run of the epoch began
  Pace pace_;
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();
  double lr_ = 0;
  std::optional<train::Loop> loop_;
};

/// The metrics and losses of DataLoader.Eval, with the weights of Global.pretrained_model.
Results evaluate(const config::TrainConfig& config);

}  // namespace trireme::trainer
