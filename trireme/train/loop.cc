#include "trireme/train/loop.h"

#include <signal.h>
#include <torch/torch.h>

#include "trireme/comm/collectives.h"

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
  parts_.meter.reset();
  results_.reset();
  while (place_.step < end_ && !(stopping_ && parts_.step.pending() == 0)) {
    parts_.meter.add(training_.train_batch({.update = is_last_batch() ? std::optional(true) : std::nullopt}));
    results_.reset();
    training_.end_batch();
    ++place_.step;
    ++place_.iteration;
  }
}

const Results& Loop::results() {
  if (!results_) {
    const Measured measured = parts_.meter.measured(parts_.ranks);
    if (measured.bad) training_.refuse(*measured.bad);
    results_ = measured.results;
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
