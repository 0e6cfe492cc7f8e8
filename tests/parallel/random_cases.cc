// Random numbers of ranks that split one model: equal, or each rank's own.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cases.h"
#include "small_gpt.h"

namespace trireme::test {
namespace {

// Dropout: equal where activations are whole, different where they are split, and the same again in a recomputation.
void gpt_dropout(const World& world) {
  seed_along(world.new_group({world.rank()}), 5);
  require_equal_everywhere(torch::rand(4), "numbers of ranks with one place along an axis");
  {
    const RankRandom own(world);
    const torch::Tensor mine = torch::rand(4);
    Tensors all;
    all_gather(all, mine);
    for (int rank = 1; rank < world.size(); ++rank)
      require(!all[static_cast<size_t>(rank)].equal(all[0]), "the ranks draw the same numbers");
  }
  require_equal_everywhere(torch::rand(4), "numbers after it");
  seed_along(world, 5);
  {
    Tensors all;
    all_gather(all, torch::rand(4));
    for (int rank = 1; rank < world.size(); ++rank)
      require(!all[static_cast<size_t>(rank)].equal(all[0]), "seed_along gives two ranks the same numbers");
  }
  for (const bool sequence_parallel : {false, true}) {
    const auto gradients = [&](bool recompute) {
      torch::manual_seed(9);
      models::GptOptions options = small(sequence_parallel, 0.3);
      options.recompute = recompute;
      models::Gpt net = models::gpt(options, world);
      net->to(world.device(), torch::kDouble);
      const auto [x, y] = text(world, 6);
      const torch::Tensor loss = net->loss(x, y);
      require_equal_everywhere(loss, "loss with dropout");
      loss.backward();
      // All ranks have the same of what is not split: else they would drift apart.
      require_equal_everywhere(net->head->norm->weight.grad(), "gradient of the last norm");
      require_equal_everywhere(net->blocks[0]->down->bias.grad(), "gradient of a bias");
      require_equal_everywhere(net->embedding->positions.grad(), "gradient of the positions");
      Tensors all;
      for (const torch::Tensor& parameter : net->parameters()) all.push_back(parameter.grad());
      return all;
    };
    const Tensors expected = gradients(false);
    require_all_near(gradients(true), expected, 1e-12, "recomputed");
  }
}

bool equal_everywhere(const torch::Tensor& tensor) {
  Tensors all;
  all_gather(all, tensor.detach().contiguous());
  return std::all_of(all.begin(), all.end(), [&](const torch::Tensor& one) { return one.equal(all[0]); });
}

// Ranks whose parts have the same numbers drop out different ones of them.
void gpt_dropout_of_parts(const World& world) {
  if (world.size() == 1) return;
  torch::manual_seed(1);
  const torch::Tensor ones = torch::ones({2, 8, 16}, torch::TensorOptions(torch::kDouble).device(world.device()));
  require(equal_everywhere(nn::parallel_dropout(ones, 0.5, /*sequence_parallel=*/false, world)), "whole activations");
  require(!equal_everywhere(nn::parallel_dropout(ones, 0.5, /*sequence_parallel=*/true, world)), "parts of a sequence");
  // Heads: the gradient of the rows that follow shows what came out of them.
  for (const bool training : {false, true}) {
    nn::ParallelTransformerBlock block(
        nn::TransformerBlockOptions{.width = 16, .heads = 8, .dropout = training ? 0.5 : 0.0}, world);
    block->to(world.device(), torch::kDouble);
    {
      const torch::NoGradGuard no_grad;
      block->qkv->weight.copy_(torch::randn(block->qkv->weight.sizes()));  // the same heads on every rank
      block->qkv->bias.zero_();
      block->project->weight.copy_(torch::randn(block->project->weight.sizes()));
    }
    block(torch::randn(ones.sizes()).to(ones)).square().sum().backward();
    require(equal_everywhere(block->project->weight.grad()) == !training, "dropout of the attention weights");
  }
}

// Going on from a checkpoint draws what an unbroken run draws.
void gpt_dropout_after_restore(const World& world) {
  const std::string folder = broadcast_object(fmt::format("gpt_dropout.{}", getpid()), 0, world);
  const Mesh mesh(world, {{"data", -1}, {"model", world.size() % 2 == 0 ? 2 : 1}});
  std::vector<Text> texts;
  for (int i = 0; i < 6; ++i) {
    const Text all = text(world, 50 + i);
    texts.push_back({share(all.x, mesh["data"]), share(all.y, mesh["data"])});
  }
  for (const bool sequence_parallel : {false, true}) {
    const auto run = [&](bool resumed) {
      torch::manual_seed(2);
      models::Gpt net = models::gpt(small(sequence_parallel, 0.2), mesh["model"]);
      net->to(world.device(), torch::kDouble);
      DataParallel model(net, mesh["data"]);
      torch::optim::Adam adam(model.parameters(), torch::optim::AdamOptions(0.01));
      seed_along(mesh["data"], resumed ? 77 : 3);
      const TrainingState state{.model = *net, .optimizer = adam};
      if (resumed) Checkpoint(folder, world).restore(state);
      for (size_t i = resumed ? 3 : 0; i < texts.size(); ++i) {
        model->loss(texts[i].x, texts[i].y).backward();
        adam.step();
        adam.zero_grad();
        if (i == 2) Checkpoint(folder, world).save(state, {.step = 3});
      }
      return flat(*net);
    };
    const torch::Tensor unbroken = run(false);
    require(run(true).equal(unbroken), "resumed, the dropout is another");
    barrier(world);
    if (world.rank() == 0) std::filesystem::remove_all(folder);
    barrier(world);
  }
}

void gpt_other_random_numbers(const World& world) {
  if (world.size() == 1) return;
  torch::manual_seed(1);
  models::Gpt net = models::gpt(small(false, 0.1), world);
  net->to(world.device());
  const Text all = text(world, 1);
  torch::manual_seed(static_cast<uint64_t>(world.rank()));
  require_error([&] { net->loss(all.x, all.y); }, "UsageError",
                {"different random numbers", "seed_along(mesh[\"data\"], seed)"});
  net->eval();
  net->loss(all.x, all.y);
  torch::manual_seed(1);
}

void gpt_other_seeds(const World& world) {
  if (world.size() == 1) return;
  const auto refused = [&](const std::function<void()>& make) {
    torch::manual_seed(static_cast<uint64_t>(world.rank()));
    require_error(make, "UsageError", {"different random numbers", "torch::manual_seed with one seed"});
  };
  refused([&] { nn::ColumnParallelLinear(4, world.size(), world); });
  refused([&] { nn::RowParallelLinear(world.size(), 4, world); });
  refused([&] { nn::VocabParallelEmbedding(world.size(), 4, world); });
  // A GPT is made from the numbers of rank 0.
  torch::manual_seed(static_cast<uint64_t>(world.rank()));
  require_equal_everywhere(models::gpt(small(false), world)->embedding->positions, "positions");
  torch::manual_seed(1);
}

}  // namespace

std::vector<Case> random_cases() {
  return {{"gpt_dropout", gpt_dropout},
          {"gpt_dropout_of_parts", gpt_dropout_of_parts},
          {"gpt_dropout_after_restore", gpt_dropout_after_restore},
          {"gpt_other_random_numbers", gpt_other_random_numbers},
          {"gpt_other_seeds", gpt_other_seeds}};
}

}  // namespace trireme::test
