#include "trireme/train/trainer/bad_loss.h"

#include <cmath>

#include "trireme/core/text.h"

namespace trireme::trainer {
namespace {

/// What to try. The loss scale cannot cure it: it comes after the loss.
std::vector<std::string> cures(const config::TrainConfig& config) {
  const config::Optimizer& optimizer = config.optimizer;
  std::vector<std::string> all = {
      optimizer.lr.values.empty()
          ? fmt::format("a lower rate (-o Optimizer.lr.learning_rate={:g})", optimizer.lr.learning_rate / 10)
          : "lower rates (-o Optimizer.lr.values=[…])"};
  if (!optimizer.clip_norm) all.emplace_back("clipped gradients (-o Optimizer.clip_norm=1.0)");
  if (config.amp.use_amp) all.emplace_back("another precision (-o AMP.dtype=bfloat16, -o AMP.use_amp=False)");
  all.emplace_back("the samples of that step: are there broken ones?");
  return all;
}

}  // namespace

std::string bad_loss_text(const config::TrainConfig& config, const train::BadLoss& bad, const BrokenStep& broken) {
  const Place& place = broken.place;
  return fmt::format(
      "[Train][Epoch {}/{}][Iter: {}/{}] the loss of {} is {} in step {}, whose learning rate is {:g}; training "
      "stops. Try {}",
      place.epoch, place.epochs, place.iter, place.iters, bad.ranks_text(), std::abs(bad.value), broken.step,
      broken.rate, join(cures(config), ", or "));
}

}  // namespace trireme::trainer
