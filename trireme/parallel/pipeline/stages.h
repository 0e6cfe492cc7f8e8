// The layers of this rank: made, named, and run forward.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/pipeline/cut.h"
#include "trireme/parallel/pipeline/layer.h"
#include "trireme/parallel/pipeline/schedule.h"
#include "trireme/parallel/random.h"

namespace trireme::parallel {

/// Layers and where they are cut: the same on every rank.
struct StagePlan {
  std::vector<PipelineLayer> layers;
  PipelineShape shape;
  Cuts cuts;  ///< of all stages
  uint64_t seed = 0;

  int stage_of(int layer) const;
  int rank_of(int layer) const { return shape.rank_of(stage_of(layer)); }
  /// The place of a layer by its name; -1: there is none.
  int find(const std::string& layer) const;
  /// "layers embed to block3", of a stage
  std::string describe_stage(int stage) const;
};

/// Made with the random numbers of the layer's place, so that a seed gives the same weights on any number of ranks. The
/// program's own random numbers go on as if nothing had been drawn.
detail::LayerModule make_layer(const StagePlan& plan, int layer);

/// The random numbers of a batch in training. Each layer draws others for each micro-batch, and the same ones wherever it
/// lies: they are made of one number that every rank draws for a batch.
struct BatchRandom {
  std::optional<uint64_t> seed = {};  ///< none: layers draw the program's own random numbers
  /// While the result lives, random numbers are those of this layer.
  std::unique_ptr<detail::SeededRandom> of(int layer, int micro_batch) const;
};

/// The stage's layers one after the other.
class StageModule : public torch::nn::Module {
 public:
  StageModule(const StagePlan& plan, int stage, torch::Device device);

  std::vector<torch::Tensor> forward(std::vector<torch::Tensor> tensors, const BatchRandom& random, int micro_batch);
  int stage() const { return stage_; }

 private:
  struct Part {
    detail::LayerModule layer;
    bool recompute;
  };
  int stage_;
  int first_layer_;
  std::vector<Part> parts_;
};

/// UsageError for names that are empty, have dots or are there twice, and for ties to what is not there.
void check_layers(const std::vector<PipelineLayer>& layers);

/// Whether a parameter of this rank's layers is held elsewhere too: its layer's function returns what it has not made.
bool has_parameters_made_before(const StagePlan& plan, int rank);
/// UsageError when two layers have the same parameter without saying so (LayerOptions::tied). Makes all layers, one at a
/// time; only parameters that were made before can be shared.
void require_no_undeclared_sharing(const StagePlan& plan);

/// The number of parameters of each layer, or the seconds that a forward and backward takes. Makes one after the other.
std::vector<double> parameter_counts(const StagePlan& plan);
std::vector<double> measured_seconds(const StagePlan& plan, const std::vector<torch::Tensor>& sample,
                                     torch::Device device);

}  // namespace trireme::parallel
