// Learning rates as functions of the step: PaddleClas' schedules with its names, options and values.
//
//   Schedule lr = make_schedule("Cosine", {.learning_rate = 0.8, .epochs = 360, .step_each_epoch = 625,
//                                          .warmup_epoch = 5});
//   set_lr(optimizer, lr(step));        // before each step; step counts from 0 over all epochs
//
// A schedule is a value without memory: the same step always gives the same rate, so that a run that goes on needs only
// its step. Three rules hold for all of them:
//
//   warm-up   over round(warmup_epoch * step_each_epoch) steps the rate climbs linearly from warmup_start_lr; step s
//             has the share s / steps, hence step 0 has warmup_start_lr itself.
//   then      the named curve begins at its own step 0: with a warm-up of 5 epochs, `decay_epochs = {30}` falls at
//             epoch 35. (So it is in PaddleClas.)
//             Behind its end a curve stays where it is.
//   by_epoch  the rate changes once an epoch, in the warm-up too; all lengths then count epochs.
//
// Thread rule: const and shared by any number of threads. No torch here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::optim {

/// The keys of Optimizer.lr in a config, with their defaults. Lengths in epochs.
struct ScheduleOptions {
  double learning_rate = 0;     ///< Piecewise: without `values`, a tenth of it every 30 epochs
  int64_t epochs = 0;           ///< of the whole training
  int64_t step_each_epoch = 0;  ///< optimizer steps in an epoch
  double warmup_epoch = 0;      ///< may be a fraction; not more than `epochs`
  double warmup_start_lr = 0;
  bool by_epoch = false;
  double eta_min = 0;                     // Cosine
  double end_lr = 0;                      // Linear: from learning_rate to end_lr along (1 - share of the length)^power
  double power = 1;                       // Linear
  bool cycle = false;                     // Linear: behind its end the curve is stretched instead
  double step_size = 0;                   // Step
  double gamma = 0.1;                     // Step, MultiStepDecay
  std::vector<double> milestones = {};    // MultiStepDecay
  std::vector<double> decay_epochs = {};  // Piecewise
  std::vector<double> values = {};        // Piecewise: one more than decay_epochs
};

class Schedule {
 public:
  /// The rate for optimizer step `step` (from 0). Throws UsageError for a negative one.
  double operator()(int64_t step) const;
  const std::string& name() const { return name_; }

 private:
  friend Schedule make_schedule(std::string_view name, const ScheduleOptions& options);
  Schedule() = default;

  std::string name_;
  std::function<double(double)> curve_;
  double warmup_ = 0;  // steps, or epochs
  double start_ = 0, base_ = 0;
  int64_t unit_ = 1;  // steps that share one rate: an epoch's with by_epoch
};

/// Constant (ConstLR), Cosine, Linear (Poly, Polynomial), Step, MultiStepDecay (MultiStep), Piecewise. Throws
/// UsageError with the nearest name for an unknown one, and for invalid options: a missing length, values that do
/// not fit.
Schedule make_schedule(std::string_view name, const ScheduleOptions& options);
std::vector<std::string> schedule_names();

}  // namespace trireme::optim
