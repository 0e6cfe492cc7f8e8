#include "trireme/optim/plateau.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/optim/state_text.h"

namespace trireme::optim {
namespace {

constexpr std::string_view kPlateauHead = "plateau 1";
constexpr std::string_view kNoBest = "none";

}  // namespace

ReduceLrOnPlateau::ReduceLrOnPlateau(const Options& options) : options_(options), lr_(options.learning_rate) {
  if (options.factor <= 0 || options.factor >= 1)
    throw UsageError("ReduceLrOnPlateau: factor {} must lie between 0 and 1", options.factor);
}

double ReduceLrOnPlateau::observe(double metric) {
  if (cooldown_ > 0) {
    --cooldown_;
    return lr_;
  }
  if (!best_ || is_better(metric)) {
    best_ = metric;
    bad_ = 0;
  } else if (++bad_ > options_.patience) {
    lower();
  }
  return lr_;
}

bool ReduceLrOnPlateau::is_better(double metric) const {
  const bool relative = options_.threshold_mode == Threshold::relative;
  const double margin = relative ? *best_ * options_.threshold : options_.threshold;
  return options_.mode == Mode::min ? metric < *best_ - margin : metric > *best_ + margin;
}

void ReduceLrOnPlateau::lower() {
  cooldown_ = options_.cooldown;
  bad_ = 0;
  const double lowered = std::max(lr_ * options_.factor, options_.min_lr);
  if (lr_ - lowered > options_.epsilon) lr_ = lowered;
}

std::string ReduceLrOnPlateau::state_text() const {
  const std::string best = best_ ? fmt::format("{}", *best_) : std::string(kNoBest);
  return StateWriter(kPlateauHead).add("lr", lr_).add("bad", bad_).add("cooldown", cooldown_).add("best", best).text();
}

void ReduceLrOnPlateau::load_state(std::string_view text) {
  ReduceLrOnPlateau loaded = *this;  // a text that breaks off half way changes nothing
  StateReader reader(kPlateauHead, text);
  loaded.lr_ = reader.real("lr");
  loaded.bad_ = reader.whole("bad");
  loaded.cooldown_ = reader.whole("cooldown");
  loaded.best_.reset();
  if (!text.ends_with(kNoBest)) loaded.best_ = reader.real("best");
  *this = loaded;
}

}  // namespace trireme::optim
