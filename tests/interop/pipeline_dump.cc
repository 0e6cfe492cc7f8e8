// pipeline_dump FOLDER SCHEDULE: trains our GPT as a pipeline over all ranks of the job, from the weights and on the
// tokens in FOLDER, as pipeline_peers.py does with torch.distributed.pipelining. Each rank writes
// ours.RANK.safetensors: the parameters of its own layers after the last step, and `losses`. The last rank adds
// `micro_losses`, [steps, micro-batches].
#include <fmt/core.h>
#include <trireme/trireme.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "trireme/parallel/pipeline/schedule.h"

using namespace trireme;

namespace {

constexpr double kRate = 0.1, kMomentum = 0.9;  // as in gpt_peers.py
constexpr int kMicroBatches = 4;                // as in pipeline_peers.py

Schedule schedule_of(const std::string& name) {
  for (const Schedule one : {Schedule::fill_drain, Schedule::one_f_one_b, Schedule::interleaved})
    if (name == parallel::name_of(one)) return one;
  throw UsageError("pipeline_dump: unknown schedule '{}'", name);
}

std::vector<PipelineLayer> double_layers(const Group& model) {
  std::vector<PipelineLayer> layers;
  for (const models::NetworkLayer& layer :
       models::gpt_layers({.vocabulary = 32, .context = 16, .width = 32, .heads = 4, .layers = 2, .dropout = 0}, model))
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

void set_weights(const Pipeline& pipe, const io::TensorMap& weights) {
  const torch::NoGradGuard no_grad;
  for (auto& item : pipe->named_parameters()) item.value().copy_(weights[item.key()]);
}

io::TensorMap trained(Schedule schedule, const std::filesystem::path& folder, const World& world) {
  Mesh mesh(world, {{"pipe", -1}, {"model", 1}});
  std::vector<double> losses, micro_losses;
  const auto loss_of = [&](const torch::Tensor& logits, const torch::Tensor& targets) {
    torch::Tensor loss = nn::parallel_cross_entropy(logits, targets, mesh["model"]);
    micro_losses.push_back(loss.item<double>());
    return loss;
  };
  Pipeline pipe(double_layers(mesh["model"]), mesh["pipe"],
                {.micro_batches = kMicroBatches,
                 .schedule = schedule,
                 .chunks = schedule == Schedule::interleaved ? 2 : 1,
                 .loss = loss_of,
                 .device = torch::kCPU});
  set_weights(pipe, io::load_safetensors(folder / "weights.safetensors"));
  torch::optim::SGD sgd(pipe.parameters(), torch::optim::SGDOptions(kRate).momentum(kMomentum));
  const torch::Tensor text = io::load_safetensors(folder / "text.safetensors")["tokens"];
  for (const torch::Tensor& tokens : text.unbind())
    losses.push_back(pipe.train_batch(tokens.slice(1, 0, 16), tokens.slice(1, 1), sgd).item<double>());
  io::TensorMap result;
  for (const auto& item : pipe->named_parameters()) result.insert(item.key(), item.value().detach());
  result.insert("losses", torch::tensor(losses, torch::kDouble));
  if (!micro_losses.empty())
    result.insert("micro_losses", torch::tensor(micro_losses, torch::kDouble).view({text.size(0), -1}));
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw UsageError("usage: pipeline_dump FOLDER SCHEDULE");
  const std::filesystem::path folder = argv[1];
  const World world = init_parallel_env();
  const io::TensorMap result = trained(schedule_of(argv[2]), folder, world);
  io::save_safetensors(folder / fmt::format("ours.{}.safetensors", world.rank()), result);
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
