#include "trireme/train/loop.h"

#include <signal.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/comm/collectives.h"
#include "trireme/watch/recorder.h"

namespace trireme::train {

Loop::Loop(Training& training, Place& place, Parts parts)
    : training_(training), place_(place), parts_(std::move(parts)) {}

void Loop::catch_signals(const std::vector<int>& signals) {
  if (!notice_) notice_.emplace(signals);
}

void Loop::run() {
  for (; place_.epoch < place_.epochs && !stopping_; ++place_.epoch) {
    train_epoch();
    training_.end_epoch();
    if (signal_ != 0) return;
  }
}

void Loop::train_epoch() {
  end_ = training_.begin_epoch();
  announce_goal();
  parts_.meter.reset();
  results_.reset();
  while (place_.step < end_ && !(stopping_ && parts_.step.pending() == 0)) {
    watch::set_step(place_.iteration + 1);
    parts_.meter.add(training_.train_batch({.update = is_last_batch() ? std::optional(true) : std::nullopt}));
    results_.reset();
    training_.end_batch();
    ++place_.step;
    ++place_.iteration;
  }
}

// For the time that is left.
void Loop::announce_goal() const {
  const int64_t later = (place_.epochs - place_.epoch - 1) * place_.steps;
  int64_t last = place_.iteration + end_ - place_.step + later;
  if (place_.iterations > 0) last = std::min(last, place_.iterations);
  watch::set_goal({.epoch = place_.epoch + 1, .epochs = place_.epochs, .last_step = last});
}

const Results& Loop::results() {
  if (!results_) {
    const Measured measured = parts_.meter.measured(parts_.ranks);
    if (measured.bad) training_.refuse(*measured.bad);
    results_ = measured.results;
    for (const auto& [name, value] : *results_) watch::report(name, value);
  }
  return *results_;
}

bool Loop::agree_to_stop(const LoopRequest& request) {
  if (signal_ != 0) return true;
  const torch::Tensor asked =
      torch::tensor({request.stop ? 1 : 0, request.save ? 1 : 0, notice_ ? notice_->signal() : 0}, torch::kInt);
  if (parts_.ranks.me().size > 1) all_reduce(asked, ReduceOp::max, parts_.ranks.group());
  saving_ = asked[1].item<int>() != 0;
  signal_ = asked[2].item<int>();
  stopping_ |= asked[0].item<int>() != 0 || signal_ != 0;
  return stopping_;
}

void Loop::raise_signal() {
  const int signal = signal_ != 0 ? signal_ : notice_ ? notice_->signal() : 0;
  notice_.reset();
  if (signal != 0) ::raise(signal);
}

const char* signal_name(int signal) {
  return signal == SIGINT ? "Ctrl-C (SIGINT)" : signal == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

}  // namespace trireme::train
