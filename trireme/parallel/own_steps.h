// Steps with gradients of this rank alone: of backwards under no_sync(), or of torch::autograd::grad(). They make the
// ranks' weights differ, unless the program averages by itself. So the ranks compare their weights at the 1st, 2nd, 4th
// such step and so on.
//
// A comparison is a collective, which must not begin on one rank alone. Between averaged backwards one rank may take
// gradients with other weights for a moment, as in an evaluation: this is noted, and the next averaged backward
// compares. A loop that has never averaged takes all its gradients by hand: there the ranks compare at once.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/parallel/local_gradients.h"
#include "trireme/parallel/model_parameters.h"
#include "trireme/parallel/weight_marks.h"

namespace trireme::parallel {

/// Thread rule: one call at a time.
class OwnSteps {
 public:
  /// `module` must outlive this.
  OwnSteps(const torch::nn::Module& module, const Group& group) : module_(module), group_(group) {}

  // --- under no_sync()

  /// `stepped`: the weights were changed with local gradients since the last one.
  void before_backward(bool stepped) { stepped_ = stepped; }
  /// The backward gives a local gradient. Called by every rank; the first one after a step may compare.
  void on_local_gradient(LocalGradients& local);

  // --- torch::autograd::grad()

  /// Before it. The number of the steps by hand, if all ranks must call require_equal_by_hand() now.
  std::optional<uint64_t> before_grad(const torch::autograd::edge_list& inputs,
                                      const std::vector<ModelParameter>& parameters);
  void require_equal_by_hand(uint64_t steps) const;
  /// Parameters have other places.
  void follow_model() { by_hand_.reset(); }

  // --- averaged backwards

  /// One begins on this rank. Whether it must compare, since weights were changed between two calls of
  /// torch::autograd::grad().
  bool begin_averaged();
  /// One begins on other ranks.
  void note_averaged();

 private:
  const torch::nn::Module& module_;
  const Group group_;
  bool stepped_ = false;                // local gradients were, before this backward
  uint64_t steps_ = 0;                  // of these that were noticed
  std::optional<WeightMarks> by_hand_;  // at the last autograd::grad() of parameters since an averaged backward
  uint64_t steps_by_hand_ = 0;
  bool has_averaged_ = false;
  bool look_ = false;  // the next averaged backward compares
  bool has_warned_ = false;
};

}  // namespace trireme::parallel
