#include "trireme/train/trainer/make_schedule.h"

#include <map>

#include "trireme/core/error.h"

namespace trireme::trainer {
namespace {

template <typename Number>
std::vector<double> scaled(const std::vector<Number>& values, double ratio) {
  std::vector<double> result;
  for (const Number value : values) result.push_back(static_cast<double>(value) * ratio);
  return result;
}

optim::ScheduleOptions options_of(const config::LearningRate& lr, const Length& length) {
  const double ratio = lr.auto_scale ? length.batch.ratio() : 1;
  return {.learning_rate = lr.learning_rate * ratio,
          .epochs = length.epochs,
          .step_each_epoch = length.steps_per_epoch,
          .warmup_epoch = lr.warmup_epoch,
          .warmup_start_lr = lr.warmup_start_lr * ratio,
          .by_epoch = lr.by_epoch,
          .eta_min = lr.eta_min * ratio,
          .end_lr = lr.end_lr * ratio,
          .power = lr.power,
          .step_size = lr.step_size,
          .gamma = lr.gamma,
          .milestones = scaled(lr.milestones, 1),
          .decay_epochs = scaled(lr.decay_epochs, 1),
          .values = scaled(lr.values, ratio)};
}

/// Who sets the rate by hand has chosen it for this batch.
bool set_by_option(const config::LearningRate& lr) {
  const auto given = [&](const char* key) { return lr.node.has(key) && lr.node.at(key).is_option(); };
  return given("learning_rate") || given("values");
}

}  // namespace

int64_t assumed_ranks(const std::string& optimizer) {
  return optimizer == "AdamW" ? 8 : 4;
}

optim::Schedule make_schedule(const config::LearningRate& lr, const Length& length) {
  try {
    return optim::make_schedule(lr.name, options_of(lr, length));
  } catch (const UsageError& error) {
    lr.node.fail("{}", error.what());
  }
}

std::optional<std::string> batch_note(const config::LearningRate& lr, const GlobalBatch& batch) {
  if (batch.assumed == 0 || batch.assumed == batch.actual) return std::nullopt;
  if (set_by_option(lr) && !lr.auto_scale) return std::nullopt;
  const double fitting = lr.learning_rate * batch.ratio();
  const std::string sizes =
      fmt::format("the global batch is {}, and the configuration's learning rate of {:g} is for {}", batch.actual,
                  lr.learning_rate, batch.assumed);
  if (lr.auto_scale) return fmt::format("{}; {:g} is used (auto_scale)", sizes, fitting);
  return fmt::format("{}; in proportion it would be {:g}, which -o Optimizer.lr.auto_scale=True sets", sizes, fitting);
}

std::string schedule_title(const config::LearningRate& lr) {
  static const std::map<std::string, std::string> titles = {{"Constant", "ConstLR"},
                                                            {"Linear", "PolynomialDecay"},
                                                            {"Poly", "PolynomialDecay"},
                                                            {"Cosine", "CosineAnnealingDecay"},
                                                            {"Step", "StepDecay"},
                                                            {"Piecewise", "PiecewiseDecay"},
                                                            {"MultiStepDecay", "MultiStepDecay"}};
  if (lr.warmup_epoch > 0) return "LinearWarmup";
  const auto found = titles.find(lr.name);
  return found == titles.end() ? lr.name : found->second;
}

}  // namespace trireme::trainer
