// Losses and metrics of batches, added up here and over all ranks, shown as means.
//
//   Scores scores(losses.names(), metrics, Scores::Order::metrics_first);
//   scores.add({values, outputs, labels, iter});            // reads nothing back from the device
//   Scores::Total total = scores.total(team);               // called by every rank
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "trireme/train/results.h"
#include "trireme/train/team.h"
#include "trireme/train/trainer/make_loss.h"
#include "trireme/train/trainer/make_metrics.h"

namespace trireme::trainer {

class Scores {
 public:
  enum class Order { metrics_first, losses_first };

  struct Batch {
    const Losses::Values& losses;
    const Outputs& outputs;
    const Labels& labels;
    int64_t iter;
  };

  /// A loss that is no number.
  struct BadLoss {
    int64_t iter;
    std::vector<int> ranks;  ///< all that have it in this iteration
    double value;            ///< of the first of them
  };
  struct Total {
    Results results;
    std::optional<BadLoss> bad;  ///< of the first iteration that has one
  };

  Scores(std::vector<std::string> losses, std::vector<RoleMetric> metrics, Order order);

  void reset();
  void add(const Batch& batch);
  /// Since the last reset(), of all ranks.
  Total total(const Team& team);
  /// The same of this rank alone.
  Results own();

 private:
  struct Pending {
    int64_t iter;
    double rows;
    torch::Tensor losses;  // each, then the total
  };

  void settle();
  Total total_of(const std::vector<std::vector<double>>& all) const;
  std::vector<double> packed() const;
  void name_losses(const std::vector<double>& sums, Results& results) const;
  void name_metrics(const std::vector<std::vector<double>>& all, Results& results) const;

  std::vector<std::string> losses_;  // the last is "loss", the total
  std::vector<RoleMetric> metrics_;
  Order order_;
  std::vector<Pending> pending_;  // not yet read from the device
  std::vector<double> sums_;      // of the losses, times rows
  double rows_ = 0;
  double bad_iter_ = -1, bad_value_ = 0;  // the first bad loss; -1: none
  std::vector<torch::Tensor> measured_;   // sums of the metrics, on the device
};

}  // namespace trireme::trainer
