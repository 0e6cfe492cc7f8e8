// Checkpoints of pipelines fit any number of stages, and one process.
#include <unistd.h>

#include <filesystem>

#include "pipeline_training.h"

namespace trireme::test {
namespace {

void pipeline_checkpoint(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  const std::string folder = broadcast_object(fmt::format("pipeline_checkpoint.{}", getpid()), 0, world);
  for (const PipelineNet& net : {mlp_net(), word_net()}) {
    OneProcess expected(net, world);
    expected.run(0, 6);
    std::vector<PipelineLayout> all = pipeline_layouts(world, {3}, 2);
    if (net.layers[0].name() == "in") {  // nothing is tied
      const std::vector<PipelineLayout> split = sharded({{world.size() >= 4 ? 2 : 1, {.micro_batches = 3}}});
      all.insert(all.end(), split.begin(), split.end());
    }
    for (const PipelineLayout& layout : all) {
      PipelineTraining first(world, net, layout);
      first.run(0, 3);
      { Checkpoint(folder, world).save(first.state(), {.step = 3}); }
      first.run(3, 6);
      first.require_like(expected, layout.text());
      for (const PipelineLayout& other :
           {all.front(), all.back(), PipelineLayout{degrees_of(world).back(), {.micro_batches = 2}}}) {
        PipelineTraining second(world, net, other);
        require(Checkpoint(folder, world).restore(second.state()).step == 3, "another step");
        { Checkpoint(folder + ".again", world).save(second.state(), {.step = 3}); }
        if (world.rank() == 0)
          for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
            const io::TensorMap one = io::load_safetensors(std::filesystem::path(folder) / "step_000000003" / file);
            const io::TensorMap two =
                io::load_safetensors(std::filesystem::path(folder + ".again") / "step_000000003" / file);
            require(one.size() == two.size() && one.size() > 3,
                    fmt::format("{} and {} tensors", one.size(), two.size()));
            for (const auto& item : one)
              require(two.contains(item.key()) && two[item.key()].equal(item.value()),
                      fmt::format("{}: other bits of {}", other.text(), item.key()));
          }
        barrier(world);
        if (world.rank() == 0) std::filesystem::remove_all(folder + ".again");
        second.run(3, 6);
        second.require_like(expected, fmt::format("{} from {}", other.text(), layout.text()));
      }
      barrier(world);
      if (world.rank() == 0) std::filesystem::remove_all(folder);
      barrier(world);
    }
  }
}

// Groups with options of their own, of which a stage has some or all: they follow the parameters into any layout.
void pipeline_checkpoint_of_groups(const World& world) {
  const std::string folder = broadcast_object(fmt::format("pipeline_groups.{}", getpid()), 0, world);
  const auto sgd_of = [](const Pipeline& pipe, double bias_rate) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const bool biases : {false, true}) {
      Tensors parameters;
      for (const auto& item : pipe.named_parameters())
        if ((item.key().ends_with("bias") && item.key() != "out.bias") == biases) parameters.push_back(item.value());
      if (parameters.empty()) continue;
      auto options = std::make_unique<torch::optim::SGDOptions>(biases ? bias_rate : 0.1);
      options->momentum(biases ? 0.5 : 0.9);
      groups.emplace_back(parameters, std::move(options));
    }
    return torch::optim::SGD(groups, torch::optim::SGDOptions(0.7));
  };
  const auto [x, y] = plain_data(1);
  CpuPipeline first(mlp(), world, {.micro_batches = 2, .loss = square_error});
  torch::optim::SGD sgd = sgd_of(first, 0.01);
  first.train_batch(x, y, sgd);
  { Checkpoint(folder, world).save({.model = first, .optimizer = sgd}, {.step = 1}); }
  const Group alone = world.new_group({world.rank()});
  for (const Group& group : {static_cast<const Group&>(world), static_cast<const Group&>(alone)}) {
    CpuPipeline second(mlp(), group, {.micro_batches = 2, .loss = square_error, .seed = 5});
    torch::optim::SGD restored = sgd_of(second, 0.5);
    Checkpoint(folder, world).restore({.model = second, .optimizer = restored});
    for (const auto& group_of : restored.param_groups()) {
      const auto& options = static_cast<const torch::optim::SGDOptions&>(group_of.options());
      const bool biases = options.momentum() == 0.5;
      require(options.lr() == (biases ? 0.01 : 0.1), fmt::format("a rate of {}", options.lr()));
    }
  }
  barrier(world);
  if (world.rank() == 0) std::filesystem::remove_all(folder);
}

// The file has the names of one process, which needs no pipeline to read it.
void pipeline_checkpoint_of_one_process(const World& world) {
  const std::string folder = broadcast_object(fmt::format("pipeline_plain.{}", getpid()), 0, world);
  const std::vector<PipelineLayer> layers{linear_layer("a", 6, 5), tanh_layer("b"), linear_layer("c", 5, 4),
                                          linear_layer("d", 4, 3)};
  if (world.size() > 4) return;
  CpuPipeline pipe(layers, world, {.micro_batches = 2, .loss = square_error});
  torch::optim::Adam adam(pipe.parameters(), 0.01);
  const auto [x, y] = plain_data(3);
  pipe.train_batch(x, y, adam);
  Checkpoint(folder, world).save({.model = pipe, .optimizer = adam}, {.step = 1});
  struct Whole : torch::nn::Module {
    Whole() {
      register_module("a", in_double(torch::nn::Linear(6, 5)));
      register_module("c", in_double(torch::nn::Linear(5, 4)));
      register_module("d", in_double(torch::nn::Linear(4, 3)));
    }
  };
  Whole whole;
  torch::optim::Adam whole_adam(whole.parameters(), 0.5);
  Checkpoint(folder, world).restore({.model = whole, .optimizer = whole_adam});
  const auto weights = whole.named_parameters();
  for (const auto& item : pipe->named_parameters())
    require(weights[item.key()].equal(item.value()), "other bits of " + item.key());
  for (const auto& item : pipe->named_parameters()) {
    const auto& mine =
        static_cast<const torch::optim::AdamParamState&>(*adam.state().at(item.value().unsafeGetTensorImpl()));
    const auto& theirs = static_cast<const torch::optim::AdamParamState&>(
        *whole_adam.state().at(weights[item.key()].unsafeGetTensorImpl()));
    require(mine.exp_avg_sq().equal(theirs.exp_avg_sq()) && mine.step() == theirs.step(),
            "other states of " + item.key());
  }
  barrier(world);
  if (world.rank() == 0) std::filesystem::remove_all(folder);
}

}  // namespace

std::vector<Case> pipeline_file_cases() {
  return {{"pipeline_checkpoint", pipeline_checkpoint},
          {"pipeline_checkpoint_of_groups", pipeline_checkpoint_of_groups},
          {"pipeline_checkpoint_of_one_process", pipeline_checkpoint_of_one_process}};
}

}  // namespace trireme::test
