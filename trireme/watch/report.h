// Metrics that a training publishes to `trireme launch --dashboard`, /metrics, progress.json and `trireme report`.
//
//   for (int64_t step = 1; …; ++step) {
//     trireme::watch::set_step(step);
//     …
//     { const trireme::watch::PhaseScope phase(trireme::watch::Phase::optimizer); adam.step(); }
//     trireme::watch::report("loss", loss.item<double>());
//   }
//
// data::Loader counts the samples, DataParallel, ShardedDataParallel and train::Step record phases and count steps, and
// Model and the trainer report loss, metrics and learning rate by themselves. A call writes into memory that the
// launcher shares: it makes no system call and costs less than a microsecond. Without a launcher that looks, it does
// nothing. Nothing here throws.
//
// Thread rule: all from any thread. A child made by fork() reports nothing.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/watch/phase.h"

namespace trireme::watch {

/// A number at this moment and in this step: "loss", "accuracy", "lr". 23 bytes of the name count. The page draws a
/// curve for each name.
void report(std::string_view name, double value);

/// The number of the step that begins now. From the first call on nothing else counts steps.
void set_step(int64_t step);

/// How far the training goes. 0: not known.
struct Goal {
  int64_t epoch = 0;  ///< the one that runs, from 1
  int64_t epochs = 0;
  int64_t last_step = 0;  ///< the number of the step after which the training ends
};

/// For the time that is left. Model and the trainer call it in each epoch.
void set_goal(const Goal& goal);

/// The training has taken so many samples more. Not needed with data::Loader.
void count_samples(int64_t samples);

/// The training is in this phase until the end of the scope, then in the one before. A scope inside one of the same
/// phase adds nothing. Scopes end in the reverse order of their beginning.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const Phase phase_;
  Phase before_;
  int64_t started_ = 0;  // 0: not recorded
};

}  // namespace trireme::watch
