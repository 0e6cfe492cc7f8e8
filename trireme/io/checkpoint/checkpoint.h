// Checkpoints for training loops of your own: save now and then, and go on after a crash as if nothing had happened.
//
//   Checkpoint checkpoint("out", world, {.every = 500, .async = true});
//   TrainingState state{.model = model, .optimizer = adam, .loader = train};
//   Progress at = checkpoint.restore(state);                   // step 0 of epoch 0 the first time
//   for (; at.epoch < 90; ++at.epoch)
//     for (auto& [x, y] : train) {
//       …;  adam.step();  ++at.step;
//       const bool stop = checkpoint.preempted();
//       if (stop || checkpoint.due(at.step)) checkpoint.save(state, at);
//       if (stop) return 0;                                    // the next start goes on from here
//     }
//
// Rank 0 writes and reads (io/checkpoint_folder.h: atomic, checksums, at least two kept, a damaged one is skipped);
// the others need not see its disk. Every rank calls save(), restore(), preempted() and wait() at the same places. An
// error of one rank is thrown by all of them, and then nothing has changed: neither the objects nor the checkpoints
// that are there.
//
// Guarantees. With the same number of ranks a run that was broken off and resumed has the bits of an unbroken one, as
// far as the program itself repeats its bits: weights, buffers, optimizer, place in the epoch, and the random numbers
// of every rank go on where they were. With another number of ranks each sample of the epoch is still seen once; the
// random numbers are not restored. What this needs of the sums over ranks:
//   shm           nothing: each element is summed in rank order, whatever else is in its bucket.
//   gloo, hierarchical, nccl, mpi   the order of a sum may depend on an element's place in its bucket (not with two
//                 ranks). The first backward of a process lays out the buckets, in the order in which gradients come:
//                 so the first backward after the resume must use the same parameters as that of the first start did.
//                 nccl and mpi also choose their algorithms themselves, and may choose others in another run.
// Not saved: gradients (so save after optimizer.step()), the error feedback of PowerSGD, and the buffers of
// ranks other than 0, which DataParallel makes equal unless broadcast_buffers is off.
//
// Thread rule: one thread, that of the training.
#pragma once

#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/io/checkpoint/training_state.h"

namespace trireme {

namespace io {
struct Manifest;
}

struct CheckpointOptions {
  int64_t every = 0;   ///< due() every so many steps; 0: never
  int keep = 2;        ///< of the numbered ones, at least 2; 0: all
  bool async = false;  ///< rank 0 writes in the background, from a copy in memory, while training goes on
  std::vector<int> signals = {SIGTERM, SIGUSR1};  ///< what preempted() listens to
  std::string not_resumed = {};  ///< a name that restore() does not take: best_model, when it holds other weights
};

/// Where the training stands. Same on all ranks.
struct Progress {
  int64_t step = 0;   ///< optimizer steps taken
  int64_t epoch = 0;  ///< the one that runs
};

struct Restored : Progress {
  std::string name;    ///< of the checkpoint; empty: there was none
  std::string config;  ///< as set_config() had it
  int world_size = 0;  ///< the number of ranks that saved it
  explicit operator bool() const { return !name.empty(); }
};

class Checkpoint {
 public:
  /// Of all ranks, by init_parallel_env(). UsageError for options out of range. The folder is made by the first
  /// save().
  explicit Checkpoint(std::filesystem::path folder, const CheckpointOptions& options = {});
  /// Of the ranks of this group, or of a World.
  Checkpoint(std::filesystem::path folder, const Group& group, const CheckpointOptions& options = {});
  /// Waits for what is being written; an error goes to the log. wait() before, to have it thrown.
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  /// Kept with each checkpoint from now on: the program's configuration, as text (UTF-8).
  void set_config(std::string config) { config_ = std::move(config); }

  /// As step_000000500. When it returns the checkpoint is on the disk; with `async` (and before a preemption) its
  /// tensors have been copied, and what fails later is thrown by the next save() or wait(). SystemError when the disk
  /// refuses, with the checkpoint that is still there; UsageError when the ranks disagree on the step.
  void save(const TrainingState& state, const Progress& progress = {});
  /// Under a name that does not count against `keep`: best_model. The one before it stays as NAME.previous.
  void save_as(const std::string& name, const TrainingState& state, const Progress& progress = {});

  /// From the newest checkpoint that is whole; an empty result when there is none. UsageError when all are damaged,
  /// with the reason for each, or when it does not fit: names and both shapes. Parts that `state` does not name are
  /// left out.
  Restored restore(const TrainingState& state);
  /// From one by its name. UsageError when it is absent or damaged.
  Restored restore_from(const std::string& name, const TrainingState& state);

  /// Whether `step` is one of every `every`.
  bool due(int64_t step) const { return options_.every > 0 && step > 0 && step % options_.every == 0; }

  /// Whether any rank has got a signal to stop (SIGTERM, SIGUSR1); the same answer on all ranks, so that all save the
  /// same step, and true for ever after. Save and end then: `trireme launch` kills after its --grace. Ask once a step
  /// and keep the answer; it costs one all_reduce of a number. The signals are caught from the first call on, for as
  /// long as the object lives; before that, they end the process as usual.
  bool preempted();
  /// The signal that made preempted() true, on whichever rank; 0: none.
  int signal() const { return signal_; }

  /// Until the last save() is on the disk. Throws what it failed with.
  void wait();

 private:
  io::Manifest manifest_of(const TrainingState& state, const Progress& progress) const;
  Restored restore_with(const TrainingState& state, const std::function<std::optional<io::Snapshot>()>& read);
  io::Snapshot local_parts(const TrainingState& state, std::optional<io::Snapshot>& found,
                           const io::Snapshot& layout) const;
  void put_all(const TrainingState& state, const io::Snapshot& local, const std::string& random);
  bool is_writer() const { return group_.size() <= 1 || group_.rank() == 0; }
  int ranks() const { return group_.size() <= 1 ? 1 : group_.size(); }

  struct Parts;

  CheckpointOptions options_;
  Group group_;  // of our own; no member: this process alone
  std::unique_ptr<Parts> parts_;
  std::string config_;
  int signal_ = 0;
};

}  // namespace trireme
