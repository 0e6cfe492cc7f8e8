// What a person sees of a run.
//
//   Epoch 1/5
//   step  10/938 - loss: 0.3012 - acc: 0.9125 - 12ms/step
//   …
//   Eval begin...
//   step 20/20 - loss: 0.2845 - acc: 0.9020 - 8ms/step
//   Eval samples: 10000
//
// The library never prints, with this one exception: printing is what a progress bar is for. fit(), evaluate() and
// predict() add one that writes to standard output unless `verbose` is 0 or the caller's callbacks hold one already:
//
//   std::ostringstream text;
//   model.fit(train, {.callbacks = {callback::ProgressBar({.out = &text})}});
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "trireme/train/callback.h"

namespace trireme::callback {

struct ProgressBarOptions {
  std::ostream* out = nullptr;           ///< null: standard output. Must outlive the run
  std::optional<bool> terminal = {};     ///< draw a bar that moves; empty: when `out` is standard output and a terminal
  std::optional<int> verbose = {};       ///< empty: the run's
  std::optional<int64_t> log_freq = {};  ///< empty: the run's; in training, only steps at which the run looks are shown
};

/// Prints on the main rank only.
class ProgressBar : public Callback {
 public:
  explicit ProgressBar(const ProgressBarOptions& options = {}) : options_(options) {}

  void on_epoch_begin(Run& run) override;
  void on_train_batch_end(Run& run) override;
  void on_eval_begin(Run& run) override;
  void on_eval_batch_end(Run& run) override;
  void on_eval_end(Run& run) override;
  void on_predict_begin(Run& run) override;
  void on_predict_batch_end(Run& run) override;
  void on_predict_end(Run& run) override;

 private:
  int verbose(const Run& run) const;
  bool draws_bar(const Run& run) const;
  bool is_due(const Run& run) const;
  void say(const Run& run, const std::string& line);
  void show(const Run& run, bool last);
  std::ostream& out() const;

  ProgressBarOptions options_;
};

}  // namespace trireme::callback
