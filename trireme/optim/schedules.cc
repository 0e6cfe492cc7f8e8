#include "trireme/optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::optim {
namespace {

constexpr int64_t kEpochsPerTenth = 30;  // PaddleClas' rule for a Piecewise without values

using Curve = std::function<double(double)>;

/// What a curve needs: the options and the length of its own part of the training, both in the schedule's unit.
struct Plan {
  const ScheduleOptions& options;
  double unit;    // of the schedule in an epoch: steps, or 1 with by_epoch
  double length;  // units after the warm-up

  std::vector<double> in_units(std::vector<double> epochs) const {
    for (double& epoch : epochs) epoch *= unit;
    return epochs;
  }
};

Curve constant(const Plan& plan) {
  return [base = plan.options.learning_rate](double) { return base; };
}

Curve cosine(const Plan& plan) {
  if (plan.length <= 0) return constant(plan);  // all is warm-up
  return [base = plan.options.learning_rate, length = plan.length, eta_min = plan.options.eta_min](double at) {
    const double share = std::min(at, length) / length;  // behind its end it would climb again
    return eta_min + (base - eta_min) * (1 + std::cos(std::numbers::pi * share)) / 2;
  };
}

Curve polynomial(const Plan& plan) {
  const ScheduleOptions& from = plan.options;
  if (plan.length <= 0) return constant(plan);
  if (from.power <= 0) throw UsageError("schedule Linear: power {} must be above 0", from.power);
  return [base = from.learning_rate, end = from.end_lr, power = from.power, cycle = from.cycle,
          whole = plan.length](double at) {
    const double length = cycle && at > 0 ? whole * std::ceil(at / whole) : whole;
    return (base - end) * std::pow(1 - std::min(at, length) / length, power) + end;
  };
}

void check_gamma(const Plan& plan) {
  const double gamma = plan.options.gamma;
  if (gamma <= 0 || gamma >= 1) throw UsageError("schedule: gamma {} must lie between 0 and 1", gamma);
}

Curve step(const Plan& plan) {
  check_gamma(plan);
  const double every = std::floor(plan.options.step_size * plan.unit);
  if (every < 1) throw UsageError("schedule Step: step_size {} is shorter than a step; set it", plan.options.step_size);
  return [base = plan.options.learning_rate, every, gamma = plan.options.gamma](double at) {
    return base * std::pow(gamma, std::floor(at / every));
  };
}

void check_ascending(std::string_view name, const std::vector<double>& epochs) {
  for (size_t i = 1; i < epochs.size(); ++i)
    if (epochs[i - 1] >= epochs[i])
      throw UsageError("schedule: {} must ascend, but {} comes before {}", name, epochs[i - 1], epochs[i]);
}

/// How many of the ascending numbers are not above `at`.
size_t passed(const std::vector<double>& numbers, double at) {
  return static_cast<size_t>(std::upper_bound(numbers.begin(), numbers.end(), at) - numbers.begin());
}

Curve multi_step(const Plan& plan) {
  check_gamma(plan);
  check_ascending("milestones", plan.options.milestones);
  return [base = plan.options.learning_rate, milestones = plan.in_units(plan.options.milestones),
          gamma = plan.options.gamma](double at) {
    return base * std::pow(gamma, static_cast<double>(passed(milestones, at)));
  };
}

Curve piecewise(const Plan& plan) {
  const ScheduleOptions& from = plan.options;
  check_ascending("decay_epochs", from.decay_epochs);
  if (from.values.size() != from.decay_epochs.size() + 1)
    throw UsageError("schedule Piecewise: {} values for {} decay_epochs; give one value more than epochs",
                     from.values.size(), from.decay_epochs.size());
  return [boundaries = plan.in_units(from.decay_epochs), values = from.values](double at) {
    return values[passed(boundaries, at)];
  };
}

struct Entry {
  const char* name;
  Curve (*make)(const Plan&);
};

constexpr Entry kEntries[] = {{"Constant", constant},  {"ConstLR", constant},     {"Cosine", cosine},
                              {"Linear", polynomial},  {"Poly", polynomial},      {"Polynomial", polynomial},
                              {"Step", step},          {"MultiStep", multi_step}, {"MultiStepDecay", multi_step},
                              {"Piecewise", piecewise}};

const Entry& find(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (entry.name == name) return entry;
  if (name.starts_with("ReduceOnPlateau") || name.starts_with("ReduceLR"))
    throw UsageError("schedule '{}' follows a metric, not the step: use callback::ReduceLROnPlateau", name);
  const auto near = closest(name, schedule_names());
  throw UsageError("schedule '{}' is unknown{}; there are: {}", printable(name),
                   near ? fmt::format(", did you mean '{}'?", *near) : "", join(schedule_names(), ", "));
}

void check(std::string_view name, const ScheduleOptions& options) {
  if (options.epochs < 1 || options.step_each_epoch < 1)
    throw UsageError("schedule {}: epochs {} and step_each_epoch {} must both be at least 1", name, options.epochs,
                     options.step_each_epoch);
  if (options.warmup_epoch < 0)
    throw UsageError("schedule {}: warmup_epoch {} must not be negative", name, options.warmup_epoch);
  if (options.learning_rate < 0)
    throw UsageError("schedule {}: learning_rate {} must not be negative", name, options.learning_rate);
}

/// Fills what the options leave open and cuts a warm-up that is longer than the training.
ScheduleOptions completed(ScheduleOptions options, bool is_piecewise) {
  options.warmup_epoch = std::min(options.warmup_epoch, static_cast<double>(options.epochs));
  if (is_piecewise && options.values.empty()) {
    options.decay_epochs.clear();
    double value = options.learning_rate;
    options.values = {value};
    for (int64_t epoch = kEpochsPerTenth; epoch < options.epochs; epoch += kEpochsPerTenth) {
      options.decay_epochs.push_back(static_cast<double>(epoch));
      options.values.push_back(value *= 0.1);
    }
  }
  if (is_piecewise) options.learning_rate = options.values.front();  // where the warm-up ends
  return options;
}

}  // namespace

double Schedule::operator()(int64_t step) const {
  if (step < 0) throw UsageError("schedule {}: step {} is negative; steps count from 0", name_, step);
  const int64_t unit = step / unit_;
  const auto at = static_cast<double>(unit);
  if (at < warmup_) return (base_ - start_) * at / warmup_ + start_;
  return curve_(at - warmup_);
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

Schedule make_schedule(std::string_view name, const ScheduleOptions& given) {
  const Entry& entry = find(name);
  check(name, given);
  const ScheduleOptions options = completed(given, entry.make == piecewise);
  const double unit = options.by_epoch ? 1 : static_cast<double>(options.step_each_epoch);
  const double length = (static_cast<double>(options.epochs) - options.warmup_epoch) * unit;
  Schedule schedule;
  schedule.name_ = name;
  schedule.curve_ = entry.make({.options = options, .unit = unit, .length = length});
  // Rounded half to even, as Python rounds.
  schedule.warmup_ = options.by_epoch ? options.warmup_epoch : std::nearbyint(options.warmup_epoch * unit);
  schedule.start_ = options.warmup_start_lr;
  schedule.base_ = options.learning_rate;
  schedule.unit_ = options.by_epoch ? options.step_each_epoch : 1;
  return schedule;
}

}  // namespace trireme::optim
