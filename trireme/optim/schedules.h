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

/// The curves after the warm-up, `at` counted in steps (or epochs) from their begin. Behind its length a curve stays at
/// its end.
double cosine_lr(double at, double base, double length, double eta_min);
/// base -> end_lr over `length` along (1 - at / length)^power; `cycle` stretches the length instead of staying at the
/// end.
struct PolynomialCurve {
  double base, length, end_lr = 0, power = 1;
  bool cycle = false;
};
double polynomial_lr(double at, const PolynomialCurve& curve);
double step_lr(double at, double base, double every, double gamma);
double multi_step_lr(double at, double base, const std::vector<double>& milestones, double gamma);
/// values[i] until boundaries[i]; the last value from then on.
double piecewise_lr(double at, const std::vector<double>& boundaries, const std::vector<double>& values);

/// The keys of Optimizer.lr in a config, with their defaults. Lengths in epochs.
struct ScheduleOptions {
  double learning_rate = 0;     ///< Piecewise: without `values`, a tenth of it every 30 epochs
  int64_t epochs = 0;           ///< of the whole training
  int64_t step_each_epoch = 0;  ///< optimizer steps in an epoch
  double warmup_epoch = 0;      ///< may be a fraction; not more than `epochs`
  double warmup_start_lr = 0;
  bool by_epoch = false;
  double eta_min = 0;                     // Cosine
  double end_lr = 0;                      // Linear
  double power = 1;                       // Linear
  bool cycle = false;                     // Linear
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
/// UsageError with the nearest name for an unknown one, and for options that cannot be: a missing length, values that
/// do not fit.
Schedule make_schedule(std::string_view name, const ScheduleOptions& options);
const std::vector<std::string>& schedule_names();

}  // namespace trireme::optim
