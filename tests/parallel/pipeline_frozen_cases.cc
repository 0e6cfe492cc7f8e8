// Stages that are frozen when the pipeline is made.
#include "pipeline_training.h"

namespace trireme::test {
namespace {

// As many linear layers as stages; the frozen one is a stage of its own.
std::vector<PipelineLayer> one_layer_a_stage(int stages, int frozen) {
  std::vector<PipelineLayer> layers;
  for (int i = 0; i < stages; ++i)
    layers.push_back({fmt::format("fc{}", i), [=] {
                        auto layer = in_double(torch::nn::Linear(6, i + 1 < stages ? 6 : 3));
                        for (const torch::Tensor& parameter : layer->parameters())
                          parameter.set_requires_grad(i != frozen);
                        return layer;
                      }});
  return layers;
}

void unfreeze(const CpuPipeline& pipe) {
  for (const torch::Tensor& parameter : pipe->parameters()) parameter.set_requires_grad(true);
}

void trains_unfrozen_like_one_process(const World& world, const PipelineLayout& layout, int stages, int frozen) {
  const PipelineNet net{one_layer_a_stage(stages, frozen), plain_data, square_error};
  for (const int batches_before : {0, 2}) {
    PipelineTraining training(world, net, layout);
    CpuPipeline alone(net.layers, world.new_group({world.rank()}), {.loss = net.loss});
    torch::optim::Adam adam(alone.parameters(), 0.01);
    for (int i = 0; i < 5; ++i) {
      if (i == batches_before) unfreeze(training.pipe), unfreeze(alone);
      training.run(i, i + 1);
      const auto [x, y] = plain_data(i);
      alone.train_batch(x, y, adam);
    }
    const auto expected = alone->named_parameters();
    for (const auto& item : training.pipe->named_parameters())
      require_near(item.value(), expected[item.key()], 1e-8,
                   fmt::format("{}, unfrozen after {} batches: {}", layout.text(), batches_before, item.key()));
  }
}

void pipeline_unfrozen_later(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  for (const int degree : degrees_of(world)) {
    const int chunks = degree == 1 ? 3 : 1, stages = degree * chunks;
    const Schedule schedule = chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
    const PipelineLayout layout{degree, {.micro_batches = 2, .schedule = schedule, .chunks = chunks}};
    for (const int frozen : {0, stages / 2, stages - 1}) {
      trains_unfrozen_like_one_process(world, layout, stages, frozen);
      for (const PipelineLayout& split : sharded({layout}))
        trains_unfrozen_like_one_process(world, split, stages, frozen);
    }
  }
}

// Nothing averages a frozen stage, so nothing else would look at it.
void pipeline_frozen_weights_differ(const World& world) {
  if (world.size() == 1) return;
  const PipelineLayout layout{1, {.schedule = Schedule::interleaved, .chunks = 3}};
  std::vector<PipelineLayout> all = sharded({layout});
  std::erase_if(all, [](const PipelineLayout& one) { return one.options.shard->shard == Shard::parameters; });
  all.push_back(layout);
  for (const PipelineLayout& one : all) {
    PipelineTraining training(world, {one_layer_a_stage(3, 1), plain_data, square_error}, one);
    training.run(0, 1);
    {
      const torch::NoGradGuard no_grad;
      if (world.rank() == 1) training.pipe->named_parameters()["fc1.weight"].add_(1);
    }
    require_error([&] { training.run(1, 4); }, "UsageError", {"parameter fc1.weight"});
  }
}

// All replicas refuse what differs on one of them, the stages that are alike too, and go on when it is repaired.
void pipeline_frozen_on_one_replica(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  for (const int degree : degrees_of(world)) {
    if (degree == world.size()) continue;  // there is one replica
    const PipelineLayout layout{degree, {.micro_batches = 2}};
    std::vector<PipelineLayout> all = sharded({layout});
    all.push_back(layout);
    for (const PipelineLayout& one : all)
      for (const bool whole_stage : {false, true}) {
        PipelineTraining training(world, {one_layer_a_stage(degree, -1), plain_data, square_error}, one);
        training.run(0, 1);
        const bool is_other = training.mesh.rank("data") == 1 && training.mesh.rank("pipe") == 0;
        const auto set_trained = [&](bool trained) {
          if (!is_other) return;
          training.pipe->named_parameters()["fc0.weight"].set_requires_grad(trained);
          if (whole_stage) training.pipe->named_parameters()["fc0.bias"].set_requires_grad(trained);
        };
        set_trained(false);
        for (int step = 1; step < 3; ++step)
          require_error([&] { training.run(step, step + 1); }, "UsageError",
                        {"trained parameter fc0.weight", "frozen parameter fc0.weight", "(data 1 of"});
        set_trained(true);
        training.run(1, 3);
      }
  }
}

// Each call goes along the data axis: a replica that evaluates does not answer one that trains.
void pipeline_other_call_on_one_replica(const World& world) {
  if (world.size() == 1 || kPipelineRows % world.size() != 0) return;
  PipelineTraining training(world, {one_layer_a_stage(1, -1), plain_data, square_error}, {1, {}});
  const auto [x, y] = training.batch(0);
  const auto call = [&, &input = x, &target = y] {
    if (world.rank() == 0)
      training.pipe.eval_batch(input, target);
    else
      training.pipe.train_batch(input, target, training.adam);
  };
  require_error(call, "UsageError", {"a call of eval_batch()", "a call of train_batch()"});
  training.run(0, 2);
}

}  // namespace

std::vector<Case> pipeline_frozen_cases() {
  return {{"pipeline_unfrozen_later", pipeline_unfrozen_later},
          {"pipeline_frozen_weights_differ", pipeline_frozen_weights_differ},
          {"pipeline_frozen_on_one_replica", pipeline_frozen_on_one_replica},
          {"pipeline_other_call_on_one_replica", pipeline_other_call_on_one_replica}};
}

}  // namespace trireme::test
