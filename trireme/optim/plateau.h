// A rate that falls when a metric stops getting better: Paddle's ReduceOnPlateau.
//
//   ReduceLrOnPlateau plateau({.learning_rate = 0.1, .mode = ReduceLrOnPlateau::Mode::max, .patience = 3});
//   set_lr(optimizer, plateau.observe(top1));       // after each evaluation
//
// A value: copy it, save its text. No torch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::optim {

class ReduceLrOnPlateau {
 public:
  enum class Mode { min, max };  ///< what is better: less or more
  enum class Threshold { relative, absolute };

  struct Options {
    double learning_rate = 0.001;
    Mode mode = Mode::min;
    double factor = 0.1;      ///< below 1
    int64_t patience = 10;    ///< this many observations without gain are borne; the next one lowers the rate
    double threshold = 1e-4;  ///< gains up to best * threshold, or threshold, do not count
    Threshold threshold_mode = Threshold::relative;
    int64_t cooldown = 0;  ///< observations after a fall that are not looked at
    double min_lr = 0;
    double epsilon = 1e-8;  ///< a fall by less is not made
  };

  /// Throws UsageError for a factor that would not lower the rate.
  explicit ReduceLrOnPlateau(const Options& options);

  /// Takes the metric of one evaluation and returns the rate from now on.
  double observe(double metric);
  double lr() const { return lr_; }

  /// "plateau 1 lr=0.01 bad=2 cooldown=0 best=0.7"; best=none before the first observation.
  std::string state_text() const;
  void load_state(std::string_view text);

 private:
  bool is_better(double metric) const;
  void lower();

  Options options_;
  double lr_;
  std::optional<double> best_;
  int64_t bad_ = 0;       // observations in a row without gain
  int64_t cooldown_ = 0;  // observations still to ignore
};

}  // namespace trireme::optim
