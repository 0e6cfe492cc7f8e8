// The callbacks that come with Trireme, besides the progress bar (progress.h). All of them decide by numbers that are
// the same on every rank, so every rank decides alike.
//
//   model.fit(train, {.eval = test, .epochs = 100, .save_dir = "out",
//                     .callbacks = {callback::EarlyStopping({.monitor = "acc", .patience = 5}),
//                                   callback::ReduceLROnPlateau({.patience = 2})}});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/train/callback.h"

namespace trireme::io {
class EventWriter;
}

namespace trireme::callback {

struct ModelCheckpointOptions {
  int64_t save_freq = 1;                ///< epochs
  std::filesystem::path save_dir = {};  ///< empty: the run's; empty too: nothing is saved
};

/// Saves save_dir/<epoch> (from 0) after every save_freq epochs, and save_dir/final in the end; save_dir/interrupted
/// instead when a signal ends the training. fit() adds one when it is given a save_dir.
class ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(ModelCheckpointOptions options = {});
  void on_epoch_end(Run& run) override;
  void on_train_end(Run& run) override;

 private:
  void save(Run& run, const std::string& name) const;

  ModelCheckpointOptions options_;
};

/// What is better: less, more, or, by the name, more for what is called acc…, auc, precision or recall, else less.
enum class Better { automatic, less, more };

/// A number among the results, and the best it has been.
class Watch {
 public:
  /// A change of min_delta or less is none. `baseline` is what has to be beaten at first.
  Watch(std::string monitor, Better better, double min_delta, std::optional<double> baseline = {});

  /// Whether the number is better than ever before, which is then remembered; one that is not finite never is.
  /// UsageError when there is no such result.
  bool improved(const Results& results);
  const std::string& monitor() const { return monitor_; }
  std::optional<double> best() const { return best_; }
  void set_best(std::optional<double> best) { best_ = best; }

 private:
  std::string monitor_;
  bool more_;
  double min_delta_;
  std::optional<double> best_;
};

/// Looks at a number after each evaluation; in a fit without one, at the training's own numbers after each epoch. What
/// EarlyStopping and ReduceLROnPlateau have in common.
class WatchCallback : public Callback {
 public:
  void on_train_begin(Run& run) override;  ///< a fit begins with no memory of another
  void on_epoch_end(Run& run) override;
  void on_eval_end(Run& run) override;
  std::string state_text() const override;
  void load_state(const std::string& text) override;

 protected:
  WatchCallback(std::string name, Watch watch) : name_(std::move(name)), initial_(watch), watch_(std::move(watch)) {}
  virtual void look(Run& run) = 0;

  std::string name_;  // in a checkpoint
  Watch initial_;
  Watch watch_;
  int64_t waited_ = 0;   // evaluations in a row without a gain
  int64_t cooling_ = 0;  // evaluations that are still not counted
};

struct EarlyStoppingOptions {
  std::string monitor = "loss";
  Better mode = Better::automatic;
  int64_t patience = 0;  ///< this many evaluations in a row without a gain end the training; 0 counts as 1
  double min_delta = 0;
  std::optional<double> baseline = {};
  bool save_best_model = true;  ///< as save_dir/best_model, when there is a save_dir
};

/// Ends the training when a result stops getting better.
class EarlyStopping : public WatchCallback {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});
  void on_train_begin(Run& run) override;
  /// The epoch (from 0) after which it stopped the training.
  std::optional<int64_t> stopped_epoch() const { return stopped_epoch_; }

 private:
  void look(Run& run) override;

  EarlyStoppingOptions options_;
  std::optional<int64_t> stopped_epoch_;
};

struct ReduceLROnPlateauOptions {
  std::string monitor = "loss";
  double factor = 0.1;    ///< below 1
  int64_t patience = 10;  ///< this many evaluations in a row without a gain lower the rate
  Better mode = Better::automatic;
  double min_delta = 1e-4;
  int64_t cooldown = 0;  ///< so many evaluations after that, less one, are not counted, as in Paddle
  double min_lr = 0;
};

/// Multiplies the learning rate by `factor` when a result stops getting better.
class ReduceLROnPlateau : public WatchCallback {
 public:
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

 private:
  void look(Run& run) override;

  ReduceLROnPlateauOptions options_;
};

struct LRSchedulerOptions {
  bool by_step = true;  ///< false: once an epoch
};

/// Sets the learning rate before each step of the optimizer (or each epoch) to schedule(n), n counted from 0; with
/// accumulate_grad_batches, too, n counts batches.
///
///   callback::LRScheduler([](int64_t step) { return 0.1 / (1 + step); })
class LRScheduler : public Callback {
 public:
  explicit LRScheduler(std::function<double(int64_t)> schedule, const LRSchedulerOptions& options = {})
      : schedule_(std::move(schedule)), options_(options) {}
  void on_epoch_begin(Run& run) override;
  void on_train_batch_begin(Run& run) override;

 private:
  std::function<double(int64_t)> schedule_;
  LRSchedulerOptions options_;
};

/// Writes results for `tensorboard --logdir LOG_DIR`, on rank 0: the training's as train/NAME at every logged step, the
/// evaluations' as eval/NAME, and the learning rate. The horizontal axis counts batches since the fit began.
class TensorBoard : public Callback {
 public:
  explicit TensorBoard(std::filesystem::path log_dir) : log_dir_(std::move(log_dir)) {}
  void on_train_begin(Run& run) override;
  void on_train_batch_end(Run& run) override;
  void on_eval_end(Run& run) override;
  void on_train_end(Run& run) override;

 private:
  void write(const Run& run, const std::string& group, int64_t step);

  std::filesystem::path log_dir_;
  std::shared_ptr<io::EventWriter> events_;  // null on the other ranks
};

}  // namespace trireme::callback
