// A small GPT in training: in one process, split over data and model axes, and as a pipeline on all three.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases.h"
#include "small_gpt.h"
#include "whole_model.h"

namespace trireme::test {

inline constexpr int kGptSteps = 10;

struct GptLayout {
  int model = 1;
  std::optional<Shard> shard = {};
  bool sequence_parallel = false;
  bool recompute = false;

  std::string text() const {
    return fmt::format("model {}, shard {}, sequence_parallel {}, recompute {}", model,
                       shard ? std::to_string(static_cast<int>(*shard) + 1) : "none", sequence_parallel, recompute);
  }
};

inline std::unique_ptr<torch::optim::Optimizer> gpt_optimizer(const Tensors& parameters, torch::Dtype type) {
  if (type == torch::kDouble) return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
  // Adam would make steps of one size of gradients that are rounding errors, such as those of the keys' bias.
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
}

// A GPT in one layout. In double, so that the order of sums does not matter.
struct GptTraining {
  World world;
  Mesh mesh;
  models::Gpt net = nullptr;
  std::optional<DataParallel<models::Gpt>> plain;
  std::optional<ShardedDataParallel<models::Gpt>> sharded;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  torch::Tensor norm;

  GptTraining(const World& ranks, const GptLayout& layout, const torch::Dtype type = torch::kDouble)
      : world(ranks), mesh(ranks, {{"data", -1}, {"model", layout.model}}) {
    torch::manual_seed(11);
    models::GptOptions options = small(layout.sequence_parallel);
    options.recompute = layout.recompute;
    net = models::gpt(options, mesh["model"]);
    net->to(world.device(), type);
    if (layout.shard)
      sharded.emplace(net, mesh["data"], ShardedOptions{.shard = *layout.shard});
    else
      plain.emplace(net, mesh["data"]);
    optimizer = gpt_optimizer(parameters(), type);
  }
  Tensors parameters() { return sharded ? sharded->parameters() : plain->parameters(); }

  void run(int from, int to) {
    for (int i = from; i < to; ++i) {
      const Text all = text(world, 100 + i);
      optimizer->zero_grad();
      net->loss(share(all.x, mesh["data"]), share(all.y, mesh["data"])).backward();
      norm = optim::clip_grad_norm(parameters(), 0.5);
      optimizer->step();
    }
  }
  TrainingState state() { return {.model = *net, .optimizer = *optimizer}; }

  WholeModel whole() { return whole_model(state(), net->named_parameters()); }
};

// Ten steps with clipping on the whole batch, in one process.
inline WholeModel gpt_of_one_process(const World& world, const torch::Dtype type = torch::kDouble) {
  torch::manual_seed(11);
  models::Gpt net = models::gpt(small(false), world.new_group({world.rank()}));
  net->to(world.device(), type);
  const auto optimizer = gpt_optimizer(net->parameters(), type);
  for (int i = 0; i < kGptSteps; ++i) {
    const auto [x, y] = text(world, 100 + i);
    optimizer->zero_grad();
    net->loss(x, y).backward();
    optim::clip_grad_norm(net->parameters(), 0.5);
    optimizer->step();
  }
  return whole_model({.model = *net, .optimizer = *optimizer}, net->named_parameters());
}

inline std::vector<int> degrees(const World& world) {
  std::vector<int> all;
  for (const int degree : {1, 2, 4, 8})
    if (world.size() % degree == 0) all.push_back(degree);
  return all;
}

inline std::vector<PipelineLayer> gpt_pipeline(const Mesh& mesh) {
  torch::manual_seed(11);
  std::vector<PipelineLayer> layers;
  for (const models::NetworkLayer& layer : models::gpt_layers(small(mesh.size("model") > 1), mesh["model"]))
    layers.emplace_back(
        layer.name,
        [make = layer.make] {
          auto module = make();
          module->to(torch::kDouble);
          return module;
        },
        LayerOptions{.tied = layer.tied});
  return layers;
}

struct GptPipeline {
  int stages = 1;
  int parts = 1;  // of the layers
  Schedule schedule = Schedule::one_f_one_b;
  std::optional<Shard> shard = {};  // over the data axis
  std::string text() const {
    return fmt::format("pipe {}, model {}, schedule {}, shard {}", stages, parts, static_cast<int>(schedule),
                       shard ? static_cast<int>(*shard) + 1 : 0);
  }
};

inline std::vector<GptPipeline> gpt_pipeline_layouts(const World& world) {
  std::vector<GptPipeline> all;
  for (const int parts : {1, 2})
    for (const int stages : {1, 2, 4}) {
      if (world.size() % (stages * parts) != 0) continue;
      for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zero_bubble})
        all.push_back({stages, parts, schedule});
      // The ends are tied: split, they must be on different ranks.
      if (stages > 1 && world.size() > stages * parts)
        for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::parameters})
          all.push_back({stages, parts, Schedule::one_f_one_b, shard});
    }
  return all;
}

// A pipeline of a GPT in double, on all axes.
struct PipedGpt {
  World world;
  Mesh mesh;
  Pipeline pipe;
  torch::optim::Adam adam;

  PipedGpt(const World& ranks, const GptPipeline& layout)
      : world(ranks),
        mesh(ranks, {{"pipe", layout.stages}, {"data", -1}, {"model", layout.parts}}),
        pipe(gpt_pipeline(mesh), mesh["pipe"], options(layout)),
        adam(pipe.parameters(), 0.01) {}
  PipelineOptions options(const GptPipeline& layout) const {
    const auto loss_of = [group = mesh["model"]](const torch::Tensor& logits, const torch::Tensor& targets) {
      return nn::parallel_cross_entropy(logits, targets, group);
    };
    PipelineOptions all{.micro_batches = static_cast<int>(kBatch) / world.size(),
                        .schedule = layout.schedule,
                        .loss = loss_of,
                        .data = mesh["data"]};
    if (layout.shard) all.shard = ShardedOptions{.shard = *layout.shard};
    return all;
  }
  Text batch(int step) const {
    const Text all = text(world, 100 + step);
    return {share(all.x, mesh["data"]), share(all.y, mesh["data"])};
  }
  // The gradients of the last step stay.
  void run(int from, int to) {
    adam.zero_grad();
    for (int i = from; i < to; ++i) {
      const auto [x, y] = batch(i);
      if (i + 1 < to) {
        pipe.train_batch(x, y, adam, {.clip_norm = 0.5});
        continue;
      }
      pipe.accumulate(x, y);
      optim::clip_grad_norm(pipe.parameters(), 0.5);
      adam.step();
    }
  }
  WholeModel whole() { return whole_model(state(), pipe.named_parameters()); }
  TrainingState state() { return {.model = pipe, .optimizer = adam}; }
};

}  // namespace trireme::test
