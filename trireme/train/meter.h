// Adds up the losses and metrics of batches, on this rank and over all ranks.
//
//   Meter meter({"loss"}, metrics);
//   meter.add({.losses = {loss}, .sums = measure(metrics, outputs, labels), .rows = 64, .step = step});
//   Measured measured = meter.measured(ranks);           // called by every rank
//
// Losses are kept in *slots*, summed slot by slot over the ranks and then in the order of the slots. An evaluation has
// a slot for each batch: each is filled by one rank only, so the sum has the same bits on any number of ranks. Training
// has one slot for all.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "trireme/train/metrics.h"
#include "trireme/train/results.h"

namespace trireme::train {

class Ranks;

/// What each metric adds for these samples.
std::vector<torch::Tensor> measure(const Metrics& metrics, const Tensors& outputs, const Tensors& labels);

/// A loss that is not a finite number.
struct BadLoss {
  int64_t step;            ///< the first step that has one
  std::vector<int> ranks;  ///< all that have it in this step
  double value;            ///< of the first of them

  /// "rank 1", "ranks 0, 2"
  std::string ranks_text() const;
};

struct Measured {
  Results results = {};  ///< the same on every rank
  std::optional<BadLoss> bad;
};

struct MeterOptions {
  int64_t slots = 1;
  bool metrics_first = false;  ///< in the results; else the losses come first
};

class Meter {
 public:
  struct Batch {
    std::vector<torch::Tensor> losses = {};  ///< one element each; empty: none are measured
    std::vector<torch::Tensor> sums = {};    ///< one for each metric; empty: none are measured
    int64_t rows = 0;
    int64_t step = 0;
    int64_t slot = 0;
  };

  /// `losses`: their names. The last one is the total, which must stay finite.
  Meter(std::vector<std::string> losses, Metrics metrics, const MeterOptions& options = {});

  void reset();
  /// Reads nothing back from the device.
  void add(const Batch& batch);
  /// Since the last reset(), over all ranks. Called by every rank.
  Measured measured(const Ranks& ranks);
  /// The same of this rank alone.
  Results own();

 private:
  struct Pending {
    int64_t step;
    size_t slot;
    double rows;
    torch::Tensor losses;
  };

  void settle();
  std::vector<double> packed() const;
  Measured unpacked(const std::vector<std::vector<double>>& all) const;
  void name_losses(const std::vector<std::vector<double>>& all, Results& results) const;
  void name_metrics(const std::vector<std::vector<double>>& all, Results& results) const;

  std::vector<std::string> names_;  // of the losses
  Metrics metrics_;
  MeterOptions options_;
  std::vector<Pending> pending_;  // not yet read from the device
  double rows_ = 0;               // with a loss
  double bad_step_ = -1;          // the first one; -1: none
  double bad_value_ = 0;
  std::vector<double> losses_;       // times rows; by slot, then by name
  std::vector<torch::Tensor> sums_;  // of the metrics, on the device
};

}  // namespace trireme::train
