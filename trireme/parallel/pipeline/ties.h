// Parameters that several layers of a pipeline have in common (LayerOptions::tied), on whatever ranks they lie.
//
// On one rank the copies use the memory of the first of them, the keeper, which alone an optimizer steps. Each rank has its
// keeper; all of them begin with the values of the parameter that the others are tied to, get the same gradient, the sum,
// and so take the same steps. Keepers that are split over the data axis are tied piece by piece: each is a unit of its own
// there, so that the pieces of all ranks fit.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/parallel/pipeline/stages.h"

namespace trireme::parallel {

class Ties {
 public:
  /// Called by every rank of the pipeline; `here` has the layers of this rank by their names. UsageError on every rank for
  /// parameters that do not exist or have different shapes.
  Ties(const StagePlan& plan, const torch::nn::Module& here, const Group& pipe);

  /// A copy that no optimizer steps: it uses the memory of another parameter of this rank.
  bool is_copy(const torch::Tensor& parameter) const;
  /// Those of this rank.
  std::vector<torch::Tensor> keepers() const;
  /// UsageError, the same on every rank, for ties within one rank: parameters that are split have their own memory.
  void require_one_on_each_rank() const;
  /// The name under which a parameter is saved: that of the one it is tied to, or its own.
  const std::string& saved_name(const std::string& name) const;
  /// Whether this rank has a parameter that is saved under this name and tied to others.
  bool is_here(const std::string& saved_name) const;

  /// Whether the copies still use the memory of their keepers: Module::to(dtype) parts them.
  bool are_joined() const;
  /// Called by every rank. UsageError on every one when the keepers of a tie have different values.
  void require_equal(const Group& pipe) const;

  /// Ends the groups of the ties: ranks that wait for this one get the reason.
  void abort(const std::string& reason) const;

  /// Before a batch adds to the gradients.
  void begin_batch();
  /// After it: each keeper gets the gradients of its copies and, with `over_ranks`, those of the other ranks.
  void end_batch(bool over_ranks);

 private:
  struct Tie {
    std::string owner = {};                 // its name
    std::vector<std::string> members = {};  // in the order of the layers
    std::vector<int> ranks = {};            // that have any of them
    torch::Tensor keeper = {};              // of this rank; undefined: it has none
    std::vector<torch::Tensor> copies = {};
    Group group = {};  // of `ranks`
  };

  std::vector<Tie> declared(const StagePlan& plan) const;
  void join(Tie& tie, const StagePlan& plan, const torch::OrderedDict<std::string, torch::Tensor>& parameters,
            const Group& pipe);
  void check_shapes(const std::vector<std::string>& mine, const Group& pipe) const;

  std::vector<Tie> ties_;
  std::map<std::string, std::string> saved_names_;
  std::vector<std::shared_ptr<const optim::SplitTensors>> uncounted_;
  bool local_ = false;  // the gradients are of this rank alone
};

}  // namespace trireme::parallel
