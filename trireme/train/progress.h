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

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>

#include "trireme/train/callback.h"

namespace trireme {

/// "0.3012"; "3.0120e-04" for what four digits would not show.
std::string number_text(double value);
/// "12ms/step", "850us/step", "1.5s/step".
std::string pace_text(double seconds_per_step);
/// "0:07", "12:30", "3:05:00".
std::string duration_text(double seconds);

struct ProgressText {
  int64_t step = 0;  ///< how many are done
  int64_t steps = 0;
  Results logs = {};
  double seconds = 0;  ///< for all that is done
};

/// "step  10/938 - loss: 0.3012 - 12ms/step"
std::string progress_line(const ProgressText& text);
/// "step  10/938 [==>......] - ETA: 0:11 - loss: …", the bar as long as leaves room within `columns`, cut off there.
std::string progress_bar(const ProgressText& text, size_t columns);
/// " - avg_reader_cost: 0.00120 sec - avg_batch_cost: 0.01080 sec - ips: 5333.3 samples/sec"
std::string cost_text(const Run& run);

}  // namespace trireme

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
