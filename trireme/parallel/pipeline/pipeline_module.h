// What a pipeline is to those who look at it as a module (optimizers, Checkpoint): the layers of this rank by their names,
// and the knowledge of what lies on the other ranks.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/parallel/pipeline/stages.h"
#include "trireme/parallel/pipeline/ties.h"

namespace trireme::parallel {

class PipelineModule : public torch::nn::Module {
 public:
  using NamedTensors = torch::OrderedDict<std::string, torch::Tensor>;

  /// Called by every rank of `group`; the stages are this rank's.
  PipelineModule(const StagePlan& plan, const std::vector<std::shared_ptr<StageModule>>& stages, const Group& group);

  /// What an optimizer steps, by the names under which its state is saved. At least one: a rank without parameters has one
  /// without elements, so that it takes part in what concerns all parameters.
  const NamedTensors& optimized() const { return optimized_; }
  Ties& ties() { return ties_; }
  int rank() const { return group_.rank(); }
  const Group& group() const { return group_; }

  /// The name under which a parameter or buffer is saved: a tied one goes by that of its owner, which is saved once.
  const std::string& saved_name(const std::string& name) const { return ties_.saved_name(name); }
  /// Whether what has this name in a file is not of this rank: it lies in a layer of another one, or is the copy of a
  /// tied parameter, as earlier versions have saved.
  bool is_elsewhere(const std::string& name) const;
  /// Called by every rank, with names under which tensors are saved: on the first one the tensors of all, those of earlier
  /// layers first. On the others their own.
  NamedTensors gathered(const NamedTensors& all_here) const;

 private:
  int place_of(const std::string& name) const;
  bool is_in_other_layer(const std::string& name) const;

  StagePlan plan_;
  Group group_;
  Ties ties_;
  NamedTensors optimized_;
};

}  // namespace trireme::parallel
