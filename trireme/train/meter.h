// Adds up the losses and metrics of batches, here and over all ranks.
//
// Losses are kept in *slots*, summed slot by slot over the ranks and then in the order of the slots. An evaluation has
// a slot for each batch: each is filled by one rank only, so the sum has the same bits on any number of ranks. Training
// has one slot for all.
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "trireme/train/held.h"
#include "trireme/train/metrics.h"
#include "trireme/train/results.h"

namespace trireme {

class Team;

using Metrics = std::vector<Held<Metric>>;

/// What the net said of a batch, and how bad that is; without a gradient. The loss may be undefined.
struct Scored {
  torch::Tensor output;
  torch::Tensor loss;
};

/// A loss that is no number.
struct BadLoss {
  int64_t step;
  int rank;
  double value;
};

struct Measured {
  Results results;  ///< the loss, then the metrics; the same on every rank
  std::optional<BadLoss> bad;
  bool stop = false;  ///< a rank wishes to stop
};

class Meter {
 public:
  Meter(const Metrics& metrics, int64_t slots) : metrics_(metrics), slots_(static_cast<size_t>(slots)) { reset(); }

  void reset();
  /// Reads nothing back from the device.
  void add(const Scored& scored, const torch::Tensor& label, int64_t step, int64_t slot);
  /// Called by every rank; the numbers so far, of all of them.
  Measured measured(const Team& team, bool stop = false);

 private:
  struct Pending {
    int64_t step;
    size_t slot;
    double rows;
    torch::Tensor loss;
  };

  void settle();
  void note_bad(int64_t step, double value);
  std::vector<double> packed(bool stop) const;
  void name_metrics(const std::vector<std::vector<double>>& all, Results& results) const;

  Metrics metrics_;
  size_t slots_;
  std::vector<Pending> pending_;  // not yet read from the device
  double rows_ = 0;               // with a loss
  double bad_step_ = -1;          // the first one; -1: none
  double bad_value_ = 0;
  std::vector<double> losses_;       // times rows, by slot
  std::vector<torch::Tensor> sums_;  // of the metrics, on the device
};

}  // namespace trireme
