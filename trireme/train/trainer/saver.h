// The checkpoints of a training, in <output_dir>/<Arch>: epoch_N, latest, and best_model.
//
//   Saver saver(config, ranks, batches, step);
//   saver.save("latest", progress);
//   saver.note_evaluation(progress);                        // the epoch that was saved last is evaluated
//   if (auto found = saver.restore("auto")) progress = *found;
//
// A checkpoint is a folder: model.safetensors (which Global.pretrained_model takes, too), optimizer.safetensors,
// ema.safetensors where there is an average, masters.safetensors with AMP level O2, the random numbers of all ranks,
// and manifest.json with checksums and the configuration. checkpoint/checkpoint.h says what going on from it
// guarantees. Called by every rank.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/config/train_config.h"
#include "trireme/core/owner_lock.h"
#include "trireme/io/checkpoint/checkpoint.h"
#include "trireme/train/ranks.h"
#include "trireme/train/step.h"
#include "trireme/train/trainer/batches.h"

namespace trireme::trainer {

/// Where a training stands.
struct SavedProgress : Progress {  // step: of the optimizer; epoch: the one that runs, from 0
  int64_t iter = 0;                ///< batches of this epoch that are done
  std::optional<double> best;
  bool evaluation_due = false;    ///< of the epoch before this one: it is trained and not evaluated
  bool notes_evaluation = false;  ///< the checkpoint says whether one is due; those of older versions do not
};

/// What a checkpoint holds as the model's weights.
enum class WeightsKind { raw, averaged };

class Saver {
 public:
  /// Keeps references to all but the configuration.
  Saver(const config::TrainConfig& config, const train::Ranks& ranks, Batches& batches, train::Step& step);

  /// `kind` is what the model holds at present.
  void save(const std::string& name, const SavedProgress& progress, WeightsKind kind = WeightsKind::raw);
  /// Brings the checkpoints of this step up to date with `progress`: they were saved before their evaluation.
  void note_evaluation(const SavedProgress& progress) const;
  /// From a checkpoint's folder, or "auto": the newest of this training that is whole; nothing when there is none.
  /// best_model is not taken by "auto": it may hold averaged weights. Warns of a configuration that has changed.
  /// UsageError when the folder is none (with those that there are), when it is damaged, or of another network.
  std::optional<SavedProgress> restore(const std::string& from);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  TrainingState state_of(SavedProgress& progress, WeightsKind kind = WeightsKind::raw);
  std::optional<double> best_until(const SavedProgress& progress, const std::filesystem::path& folder) const;

  const train::Ranks& ranks_;
  Batches& batches_;
  train::Step& step_;
  std::filesystem::path folder_;
  std::string config_;
  Checkpoint checkpoint_;
};

/// Where a training puts its files.
std::filesystem::path output_folder(const config::TrainConfig& config);

/// Makes the folder and keeps a second training out of it, where the two would overwrite each other's checkpoints, as
/// long as the result lives. UsageError that names process and host when another has it. For rank 0.
OwnerLock lock_output(const std::filesystem::path& folder);

}  // namespace trireme::trainer
