// Layers that lie on the ranks one after the other train as one process does.
#include <limits>
#include <optional>

#include "pipeline_training.h"

namespace trireme::test {
namespace {

void pipeline_schedules(const World& world) {
  trains_like_one_process(world, mlp_net(), pipeline_layouts(world, {1, 5}, 3),
                          {layout_of(2, 5, Schedule::one_f_one_b), layout_of(4, 5, Schedule::zero_bubble),
                           layout_of(2, 5, Schedule::interleaved, 2), layout_of(4, 1, Schedule::fill_drain)});
}
void pipeline_several_tensors(const World& world) {
  trains_like_one_process(world, image_net(), pipeline_layouts(world, {4}, 2),
                          {layout_of(2, 4, Schedule::one_f_one_b), layout_of(4, 4, Schedule::zero_bubble)});
}
void pipeline_tied(const World& world) {
  trains_like_one_process(world, word_net(), pipeline_layouts(world, {3}, 2),
                          {layout_of(2, 3, Schedule::interleaved, 2), layout_of(4, 3, Schedule::zero_bubble)});
}

void pipeline_sharded(const World& world) {
  trains_like_one_process(world, mlp_net(), sharded(pipeline_layouts(world, {3}, 2)),
                          {layout_of(2, 3, Schedule::one_f_one_b, 1, Shard::parameters),
                           layout_of(2, 3, Schedule::zero_bubble, 1, Shard::gradients),
                           layout_of(2, 3, Schedule::interleaved, 2, Shard::optimizer),
                           layout_of(1, 3, Schedule::one_f_one_b, 1, Shard::parameters),
                           layout_of(1, 3, Schedule::interleaved, 2, Shard::gradients),
                           layout_of(4, 3, Schedule::one_f_one_b, 1, Shard::parameters)});
  std::vector<PipelineLayout> apart = sharded(pipeline_layouts(world, {3}, 1));
  std::erase_if(apart, [](const PipelineLayout& layout) { return layout.degree == 1; });
  trains_like_one_process(world, tied_ends(), apart,
                          {layout_of(2, 3, Schedule::one_f_one_b, 1, Shard::parameters),
                           layout_of(2, 3, Schedule::zero_bubble, 1, Shard::optimizer),
                           layout_of(4, 3, Schedule::zero_bubble, 1, Shard::gradients)});
  if (world.size() < 2) return;
  require_error(
      [&] {
        PipelineTraining(world, tied_ends(), {1, {.shard = ShardedOptions{}}});
      },
      "UsageError", {"2 tied parameters (embed.weight, head.weight) lie on 1 pipe rank", ".shard", ".begins"});
}

// Two batches a step under no_sync(), clipped.
void pipeline_sharded_clipping(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  const PipelineNet net = tied_ends();
  OneProcess expected(net, world, 0.01);
  expected.run(0, 4);
  for (const PipelineLayout& layout : sharded(pipeline_layouts(world, {2}, 1))) {
    if (layout.degree == 1) continue;
    PipelineTraining training(world, net, layout);
    for (int i = 0; i < 4; ++i) {
      const auto [x, y] = training.batch(i);
      {
        const NoSync local = training.pipe.no_sync();
        training.pipe.accumulate(x, y, {.share = 0.5});
      }
      training.pipe.accumulate(x, y, {.share = 0.5});
      const double norm = optim::clip_grad_norm(training.pipe.parameters(), 0.01).item<double>();
      training.adam.step();
      training.adam.zero_grad();
      if (i == 3)
        require(std::abs(norm - expected.norm) < 1e-8 * expected.norm,
                fmt::format("{}: norm {} instead of {}", layout.text(), norm, expected.norm));
    }
    training.require_like(expected, layout.text());
    const auto [x, y] = training.batch(4);
    const auto [all_x, all_y] = net.data(4);
    require_same_losses({training.pipe.eval_batch(x, y).item<double>()}, {expected.loss(all_x, all_y).item<double>()},
                        layout.text());
  }
}

void pipeline_recompute(const World& world) {
  trains_like_one_process(world, {mlp({.recompute = true}), plain_data, square_error}, pipeline_layouts(world, {3}, 2),
                          {layout_of(2, 3, Schedule::one_f_one_b), layout_of(4, 3, Schedule::interleaved, 2)});
}

// Stages that begin or end with an operation that changes its input.
struct HalvingLayer : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x.mul_(0.5); }
};
void pipeline_in_place(const World& world) {
  std::vector<PipelineLayer> layers{linear_layer("in", 6, 10)};
  for (int i = 0; i < 4; ++i) {
    layers.push_back({fmt::format("halve{}", i), [] { return std::make_shared<HalvingLayer>(); }});
    layers.push_back({fmt::format("relu{}", i), [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); }});
    layers.push_back(linear_layer(fmt::format("fc{}", i), 10, 10));
  }
  layers.push_back(linear_layer("out", 10, 3));
  trains_like_one_process(world, {layers, plain_data, square_error}, pipeline_layouts(world, {3}, 3),
                          {layout_of(2, 3, Schedule::fill_drain), layout_of(2, 3, Schedule::interleaved, 3),
                           layout_of(4, 3, Schedule::zero_bubble)});
}

// The cast weights are shared by the micro-batches of a batch.
void pipeline_autocast(const World& world) {
  std::vector<PipelineLayer> layers;
  for (int i = 0; i < 8; ++i) layers.push_back({fmt::format("fc{}", i), [] { return torch::nn::Linear(6, 6); }});
  if (world.size() > 8) return;
  const auto loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output.to(torch::kFloat), target);
  };
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zero_bubble}) {
    CpuPipeline alone(layers, world.new_group({world.rank()}), {.micro_batches = 4, .loss = loss});
    CpuPipeline pipe(layers, world, {.micro_batches = 4, .schedule = schedule, .loss = loss});
    torch::optim::SGD one(alone.parameters(), 0.1), sgd(pipe.parameters(), 0.1);
    for (int i = 0; i < 5; ++i) {
      const torch::Tensor x = numbers({12, 6}, i), y = numbers({12, 6}, 50 + i);
      const optim::Autocast amp({.device = torch::kCPU, .dtype = torch::kBFloat16});
      require_near(pipe.train_batch(x, y, sgd), alone.train_batch(x, y, one), 1e-5, "loss in bf16");
    }
    const auto expected = alone->named_parameters();
    for (const auto& item : pipe->named_parameters())
      require_near(item.value(), expected[item.key()], 1e-4, "after steps in bf16: " + item.key());
  }
}

// The norm is over all stages, and counts what is tied once.
void pipeline_clipping(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  for (const PipelineNet& net : {mlp_net(), word_net()}) {
    OneProcess expected(net, world, 0.01);
    expected.run(0, 5);
    for (const PipelineLayout& layout : pipeline_layouts(world, {3}, 2)) {
      PipelineTraining clipped(world, net, layout), by_hand(world, net, layout), scaled(world, net, layout);
      clipped.run(0, 5, {.clip_norm = 0.01});
      clipped.require_like(expected, layout.text());
      optim::GradScaler scaler({.init_scale = 1024});
      scaled.run(0, 5, {.scaler = &scaler, .clip_norm = 0.01});
      scaled.require_like(expected, layout.text());
      double norm = 0;
      for (int i = 0; i < 5; ++i) {
        const auto [x, y] = by_hand.batch(i);
        by_hand.pipe.accumulate(x, y);
        norm = optim::clip_grad_norm(by_hand.pipe.parameters(), 0.01).item<double>();
        by_hand.adam.step();
        by_hand.adam.zero_grad();
      }
      require(std::abs(norm - expected.norm) < 1e-8 * expected.norm,
              fmt::format("{}: norm {} instead of {}", layout.text(), norm, expected.norm));
    }
  }
}

// A number that is not finite on one stage stops the step on all.
void pipeline_overflow(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  for (const int degree : degrees_of(world)) {
    PipelineTraining training(world, mlp_net(), {degree, {.micro_batches = 2}});
    const Tensors before = [&] {
      Tensors all;
      for (const torch::Tensor& parameter : training.pipe.parameters()) all.push_back(parameter.detach().clone());
      return all;
    }();
    optim::GradScaler scaler({.init_scale = 1024});
    const auto [x, y] = training.batch(0);
    training.pipe.accumulate(x, y, {.scaler = &scaler});
    if (training.mesh.rank("pipe") == degree - 1)
      training.pipe.parameters().back().mutable_grad().view(-1)[0] = std::numeric_limits<double>::infinity();
    require(!scaler.step(training.adam), "a stage steps when another one has an infinite gradient");
    scaler.update();
    require(scaler.current_scale() == 512, "the scale stays");
    const Tensors after = training.pipe.parameters();
    for (size_t i = 0; i < after.size(); ++i) require(after[i].equal(before[i]), "a parameter has moved");
  }
}

// Two batches, one step: with and without no_sync().
void pipeline_accumulation(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  const PipelineNet net = word_net();
  const PipelineNet twice{net.layers,
                          [&](int step) {
                            const auto [x, y] = net.data(2 * step);
                            const auto [x2, y2] = net.data(2 * step + 1);
                            return std::pair(torch::cat({x, x2}), torch::cat({y, y2}));
                          },
                          net.loss};
  OneProcess expected(twice, world);
  expected.run(0, 4);
  for (const PipelineLayout& layout : pipeline_layouts(world, {2}, 2))
    for (const bool local : {true, false}) {
      PipelineTraining training(world, net, layout);
      for (int i = 0; i < 4; ++i) {
        {
          std::optional<NoSync> stays;
          if (local) stays.emplace(training.pipe.no_sync());
          const auto [x, y] = training.batch(2 * i);
          training.pipe.accumulate(x, y, {.share = 0.5});
        }
        const auto [x, y] = training.batch(2 * i + 1);
        training.pipe.accumulate(x, y, {.share = 0.5});
        training.adam.step();
        training.adam.zero_grad();
      }
      training.require_like(expected, layout.text() + (local ? " without sync" : ""));
    }
}

void pipeline_evaluation(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  std::vector<PipelineLayer> layers = mlp();
  layers.insert(layers.begin() + 3, {"dropout", [] { return torch::nn::Dropout(0.5); }});
  OneProcess expected(mlp_net(), world);
  const auto [all_x, all_y] = plain_data(1);
  const double loss = expected.loss(all_x, all_y).item<double>();
  for (const PipelineLayout& layout : pipeline_layouts(world, {5}, 3)) {
    PipelineTraining training(world, {layers, plain_data, square_error}, layout);
    // Layer seeds go by place, and the dropout has moved some.
    {
      const torch::NoGradGuard no_grad;
      for (auto& item : training.pipe->named_parameters()) item.value().copy_(expected[item.key()]);
    }
    const auto [x, y] = training.batch(1);
    require_same_losses({training.pipe.eval_batch(x, y).item<double>()}, {loss}, layout.text());
    const Tensors outputs = training.pipe.predict(x);
    const bool last = training.mesh.rank("pipe") == layout.degree - 1;
    require(outputs.size() == (last ? 1u : 0u), "outputs on a wrong rank");
    if (last)
      require(std::abs(torch::mse_loss(outputs[0], y).item<double>() - expected.loss(x, y).item<double>()) < 1e-8,
              "other outputs");
    require(training.pipe->is_training(), "evaluation mode stays");
    training.pipe.train_batch(x, y, training.adam);
  }
}

// Batches of other shapes, and tensors between stages that change by themselves.
struct StretchingLayer : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return x.repeat({1, static_cast<int64_t>(1 + x.detach().abs().sum().item<double>()) % 3 + 1});
  }
};
struct FoldingLayer : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x.reshape({x.size(0), -1, 6}).mean(1); }
};
void pipeline_shapes(const World& world) {
  const Group alone = world.new_group({world.rank()});
  CpuPipeline expected(mlp(), alone, {.micro_batches = 2, .loss = square_error});
  CpuPipeline pipe(mlp(), world, {.micro_batches = 2, .loss = square_error});
  torch::optim::SGD one(expected.parameters(), 0.1), sgd(pipe.parameters(), 0.1);
  for (const int64_t rows : {8, 8, 5, 8, 2, 5}) {
    const torch::Tensor x = doubles_like({rows, 6}, 1), y = doubles_like({rows, 3}, 2);
    require_near(pipe.train_batch(x, y, sgd), expected.train_batch(x, y, one), 1e-10, "loss after another shape");
    require_near(pipe.eval_batch(x, y), expected.eval_batch(x, y), 1e-10, "evaluation");
  }
  std::vector<PipelineLayer> changing{linear_layer("in", 6, 6),
                                      {"change", [] { return std::make_shared<StretchingLayer>(); }},
                                      {"fold", [] { return std::make_shared<FoldingLayer>(); }},
                                      linear_layer("out", 6, 3)};
  if (world.size() > 4) return;
  CpuPipeline free(changing, world, {.micro_batches = 3, .loss = square_error, .dynamic_shapes = true});
  CpuPipeline same(changing, alone, {.micro_batches = 3, .loss = square_error});
  torch::optim::SGD free_sgd(free.parameters(), 0.1), same_sgd(same.parameters(), 0.1);
  for (int i = 0; i < 6; ++i) {
    const torch::Tensor x = doubles_like({7, 6}, i), y = doubles_like({7, 3}, 50 + i);
    require_near(free.train_batch(x, y, free_sgd), same.train_batch(x, y, same_sgd), 1e-10, "loss of changing shapes");
  }
}

// Inputs are needed by the first rank and targets by the last.
void pipeline_inputs_where_needed(const World& world) {
  CpuPipeline pipe(mlp(), world, {.micro_batches = 2, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto [x, y] = plain_data(1);
  const BatchTensors inputs = world.rank() == 0 ? BatchTensors(x) : BatchTensors();
  const BatchTensors targets = world.rank() == world.size() - 1 ? BatchTensors(y) : BatchTensors();
  const double first = pipe.train_batch(inputs, targets, sgd).item<double>();
  require(pipe.train_batch(inputs, targets, sgd).item<double>() < first, "it does not learn");
}

void pipeline_cuts(const World& world) {
  const Group alone = world.new_group({world.rank()});
  const auto [x, y] = plain_data(1);
  CpuPipeline expected(mlp(), alone, {.micro_batches = 2, .loss = square_error});
  const double loss = expected.eval_batch(x, y).item<double>();
  std::vector<std::string> begins{"in"};
  for (int stage = 1; stage < world.size(); ++stage) begins.push_back(fmt::format("tanh{}", stage));
  for (const PipelineOptions& options :
       {PipelineOptions{.micro_batches = 2, .loss = square_error, .cut = Cut::parameters},
        PipelineOptions{.micro_batches = 2, .loss = square_error, .cut = Cut::time, .sample = x},
        PipelineOptions{.micro_batches = 2, .loss = square_error, .begins = begins}}) {
    if (!options.begins.empty() && world.size() > 6) continue;
    CpuPipeline pipe(mlp(), world, options);
    require_same_losses({pipe.eval_batch(x, y).item<double>()}, {loss}, pipe.describe());
    if (!options.begins.empty() && world.rank() > 0)
      require(pipe.describe().find(fmt::format("tanh{}", world.rank())) != std::string::npos, pipe.describe());
  }
  // Layers that begin in place are measured, on copies of the sample.
  std::vector<PipelineLayer> in_place = mlp();
  in_place.insert(in_place.begin(), {"relu", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); }});
  const torch::Tensor sample = x.clone();
  CpuPipeline measured(
      in_place, world,
      {.loss = square_error, .cut = Cut::time, .sample = world.rank() == 0 ? BatchTensors(sample) : BatchTensors()});
  require(sample.equal(x), "the sample has changed");
  // Every pipe of a data axis is cut alike, though their clocks differ.
  if (world.size() % 2 == 0) {
    const Mesh mesh(world, {{"pipe", -1}, {"data", 2}});
    CpuPipeline pipe(mlp(), mesh["pipe"], {.loss = square_error, .cut = Cut::time, .sample = x, .data = mesh["data"]});
    const std::vector<std::string> all = all_gather_object(pipe.describe(), mesh["data"]);
    require(all[0] == all[1], all[0] + " and " + all[1]);
  }
  std::vector<PipelineLayer> heavy{linear_layer("a", 6, 500), linear_layer("b", 500, 6), linear_layer("c", 6, 6),
                                   linear_layer("d", 6, 3)};
  if (world.size() != 2) return;
  CpuPipeline pipe(heavy, world, {.loss = square_error, .cut = Cut::parameters});
  require(pipe.describe() == (world.rank() == 0 ? "stage 0 of 2: layer a" : "stage 1 of 2: layers b to d"),
          pipe.describe());
}

// A stage of split layers, all three axes together.
struct StagedBlock : torch::nn::Module {
  explicit StagedBlock(const Group& group)
      : up(register_module("up",
                           nn::ColumnParallelLinear(6, 8, group, nn::ColumnParallelOptions{.gather_output = false}))),
        down(register_module("down",
                             nn::RowParallelLinear(8, 6, group, nn::RowParallelOptions{.input_is_parallel = true}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::tanh(up(x))); }
  nn::ColumnParallelLinear up;
  nn::RowParallelLinear down;
};
void pipeline_of_split_layers(const World& world) {
  if (world.size() % 2 != 0) return;
  const int pipes = world.size() % 4 == 0 ? 2 : 1;
  const Mesh mesh(world, {{"pipe", pipes}, {"data", -1}, {"model", 2}});
  const auto layers_over = [](const Group& group) {
    std::vector<PipelineLayer> layers{linear_layer("in", 6, 6)};
    for (int i = 0; i < 3; ++i)
      layers.push_back(
          {fmt::format("block{}", i), [group] { return in_double(std::make_shared<StagedBlock>(group)); }});
    layers.push_back(linear_layer("out", 6, 3));
    return layers;
  };
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zero_bubble}) {
    CpuPipeline expected(layers_over(world.new_group({world.rank()})), world.new_group({world.rank()}),
                         {.micro_batches = 2, .loss = square_error});
    // The last stage has no split layer: norms must not wait for it.
    CpuPipeline pipe(layers_over(mesh["model"]), mesh["pipe"],
                     {.micro_batches = 4,
                      .schedule = schedule,
                      .loss = square_error,
                      .begins = pipes == 2 ? std::vector<std::string>{"in", "out"} : std::vector<std::string>(),
                      .data = mesh["data"]});
    torch::optim::SGD one(expected.parameters(), 0.1), sgd(pipe.parameters(), 0.1);
    for (int i = 0; i < 5; ++i) {
      const auto [x, y] = plain_data(i);
      const torch::Tensor wanted = expected.train_batch(x, y, one, {.clip_norm = 0.05});
      const torch::Tensor got =
          pipe.train_batch(share(x, mesh["data"]), share(y, mesh["data"]), sgd, {.clip_norm = 0.05});
      require_near(got, wanted, 1e-9, "loss of split layers in a pipeline");
    }
  }
}

}  // namespace

std::vector<Case> pipeline_cases() {
  return {{"pipeline_schedules", pipeline_schedules},
          {"pipeline_several_tensors", pipeline_several_tensors},
          {"pipeline_tied", pipeline_tied},
          {"pipeline_sharded", pipeline_sharded},
          {"pipeline_sharded_clipping", pipeline_sharded_clipping},
          {"pipeline_recompute", pipeline_recompute},
          {"pipeline_in_place", pipeline_in_place},
          {"pipeline_autocast", pipeline_autocast},
          {"pipeline_clipping", pipeline_clipping},
          {"pipeline_overflow", pipeline_overflow},
          {"pipeline_accumulation", pipeline_accumulation},
          {"pipeline_evaluation", pipeline_evaluation},
          {"pipeline_shapes", pipeline_shapes},
          {"pipeline_inputs_where_needed", pipeline_inputs_where_needed},
          {"pipeline_cuts", pipeline_cuts},
          {"pipeline_of_split_layers", pipeline_of_split_layers}};
}

}  // namespace trireme::test
