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

  /// Whether this is the name of something in a layer of another rank.
  bool is_elsewhere(const std::string& name) const;
  /// Called by every rank: on the first one the tensors of all, those of earlier layers first. On the others their own.
  NamedTensors gathered(const NamedTensors& mine) const;

 private:
  int place_of(const std::string& name) const;

  StagePlan plan_;
  Group group_;
  Ties ties_;
  NamedTensors optimized_;
};

}  // namespace trireme::parallel
