// Layers that are split over the ranks compute what whole ones do.
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <optional>

#include "cases.h"
#include "trireme/parallel/together.h"
#include "whole_model.h"

namespace trireme::test {
namespace {

// Everything in double on the device of the world.
torch::Tensor doubles(const World& world, at::IntArrayRef sizes, int seed) {
  return numbers(sizes, seed).to(world.device(), torch::kDouble);
}

// This rank's part of a tensor along a dimension.
torch::Tensor part(const torch::Tensor& whole, int64_t dim, const Group& group) {
  return whole.chunk(group.size(), dim)[static_cast<size_t>(group.rank())];
}

template <typename Module>
Module on(const World& world, Module module) {
  module->to(world.device(), torch::kDouble);
  return module;
}

// Column, then row: the pair of a transformer's MLP, five steps of SGD beside the whole layers.
void tensor_linear_pair(const World& world) {
  const int64_t wide = 8 * world.size();
  for (const bool whole_between : {true, false}) {
    torch::manual_seed(3);
    auto up = on(world, torch::nn::Linear(6, wide)), down = on(world, torch::nn::Linear(wide, 4));
    torch::manual_seed(3);
    auto split_up =
        on(world, nn::ColumnParallelLinear(6, wide, world, nn::ColumnParallelOptions{.gather_output = whole_between}));
    auto split_down =
        on(world, nn::RowParallelLinear(wide, 4, world, nn::RowParallelOptions{.input_is_parallel = !whole_between}));
    require(split_up->weight.equal(part(up->weight, 0, world)), "the same seed gives another layer");
    Tensors all = up->parameters(), split = split_up->parameters();
    for (const torch::Tensor& parameter : down->parameters()) all.push_back(parameter);
    for (const torch::Tensor& parameter : split_down->parameters()) split.push_back(parameter);
    torch::optim::SGD sgd(all, torch::optim::SGDOptions(0.1).momentum(0.9)),
        split_sgd(split, torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 5; ++step) {
      const torch::Tensor x = doubles(world, {2, 3, 6}, step).requires_grad_();
      const torch::Tensor same_x = x.detach().clone().requires_grad_();
      const torch::Tensor expected = down(torch::gelu(up(x))), got = split_down(torch::gelu(split_up(same_x)));
      require_near(got, expected, 1e-12, "outputs");
      expected.square().sum().backward();
      got.square().sum().backward();
      require_near(same_x.grad(), x.grad(), 1e-12, "gradient of the input");
      require_near(split_up->weight.grad(), part(up->weight.grad(), 0, world), 1e-12, "gradient of the columns");
      require_near(split_up->bias.grad(), part(up->bias.grad(), 0, world), 1e-12, "gradient of their bias");
      require_near(split_down->weight.grad(), part(down->weight.grad(), 1, world), 1e-12, "gradient of the rows");
      require_near(split_down->bias.grad(), down->bias.grad(), 1e-12, "gradient of their bias");
      for (torch::optim::SGD* one : {&sgd, &split_sgd}) {
        one->step();
        one->zero_grad();
      }
    }
    require_near(split_down->weight, part(down->weight, 1, world), 1e-11, "weights after five steps");
  }
}

// Norm, column, row and the sum with the input, each rank with its part of the sequence, beside the whole layers.
struct SequenceNet : torch::nn::Module {
  explicit SequenceNet(const Group& ranks)
      : group(ranks),
        norm(register_module("norm",
                             nn::ParallelLayerNorm(6, group, nn::ParallelLayerNormOptions{.sequence_parallel = true}))),
        up(register_module(
            "up", nn::ColumnParallelLinear(
                      6, 16, group, nn::ColumnParallelOptions{.gather_output = false, .sequence_parallel = true}))),
        down(register_module(
            "down", nn::RowParallelLinear(
                        16, 6, group, nn::RowParallelOptions{.input_is_parallel = true, .sequence_parallel = true}))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor part = nn::split_sequence(x, group);
    for (int i = 0; i < 2; ++i) part = part + down(torch::gelu(up(norm(part))));
    require(part.size(1) == x.size(1) / group.size(), "the sequence is whole");
    return nn::gather_sequence(part, group);
  }
  Group group;
  nn::ParallelLayerNorm norm;
  nn::ColumnParallelLinear up;
  nn::RowParallelLinear down;
};

void tensor_sequence(const World& world) {
  if (16 % world.size() != 0) return;
  const Group self = world.new_group({world.rank()});
  torch::manual_seed(8);
  auto whole = on(world, std::make_shared<SequenceNet>(self));
  torch::manual_seed(8);
  auto split = on(world, std::make_shared<SequenceNet>(world));
  const torch::Tensor x = doubles(world, {2, 4 * world.size(), 6}, 1).requires_grad_();
  const torch::Tensor same_x = x.detach().clone().requires_grad_();
  const torch::Tensor expected = whole->forward(x), got = split->forward(same_x);
  require_near(got, expected, 1e-12, "outputs");
  expected.pow(3).sum().backward();
  got.pow(3).sum().backward();
  require_near(same_x.grad(), x.grad(), 1e-12, "gradient of the input");
  require_near(split->up->weight.grad(), part(whole->up->weight.grad(), 0, world), 1e-12, "gradient of the columns");
  require_near(split->up->bias.grad(), part(whole->up->bias.grad(), 0, world), 1e-12, "gradient of their bias");
  require_near(split->down->weight.grad(), part(whole->down->weight.grad(), 1, world), 1e-12, "gradient of the rows");
  require_near(split->down->bias.grad(), whole->down->bias.grad(), 1e-12, "gradient of their bias");
  require_near(split->norm->weight.grad(), whole->norm->weight.grad(), 1e-12, "gradient of the norm");
  require_near(split->norm->bias.grad(), whole->norm->bias.grad(), 1e-12, "gradient of its bias");
}

// A parameter on a part of the sequence whose gradient nobody sums is refused before it can train anything.
void tensor_sequence_forgotten(const World& world) {
  if (world.size() == 1) return;
  torch::manual_seed(1);
  const auto plain = on(world, torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  const auto up = on(world, nn::ColumnParallelLinear(6, 8 * world.size(), world,
                                                     nn::ColumnParallelOptions{.sequence_parallel = true}));
  const torch::Tensor part = nn::split_sequence(doubles(world, {2, 4 * world.size(), 6}, 1), world);
  const auto refused = [&](const std::function<void()>& use) {
    require_error(use, "UsageError", {"shape [6]", "[2, 4, 6]", "not summed", "nn::sequence_shared(parameter, group)"});
  };
  refused([&] { nn::ColumnParallelLinear(up)->forward(torch::nn::LayerNorm(plain)->forward(part)); });
  refused([&] { nn::gather_sequence(part + plain->bias, world); });
  nn::gather_sequence(part + nn::sequence_shared(plain->bias, world), world).sum().backward();
  require_near(plain->bias.grad(), torch::full_like(plain->bias, 8.0 * world.size()), 1e-12, "its gradient");
  const torch::NoGradGuard no_grad;
  nn::gather_sequence(torch::nn::LayerNorm(plain)->forward(part), world);  // nothing is trained
}

void tensor_without_bias(const World& world) {
  torch::manual_seed(1);
  const int64_t wide = 4 * world.size();
  for (const bool sequence_parallel : {false, true}) {
    auto up = on(world,
                 nn::ColumnParallelLinear(
                     6, wide, world, nn::ColumnParallelOptions{.bias = false, .sequence_parallel = sequence_parallel}));
    torch::Tensor x = doubles(world, {2, 2 * world.size(), 6}, 2).requires_grad_();
    up(sequence_parallel ? nn::split_sequence(x, world) : x).sum().backward();
    require_near(up->weight.grad(), x.detach().flatten(0, 1).sum(0).expand({4, 6}), 1e-12, "gradient of the columns");
    require(up->parameters().size() == 1, "there is a bias");
  }
}

void tensor_embedding_and_loss(const World& world) {
  const int64_t words = 5 * world.size();
  torch::manual_seed(4);
  auto whole = on(world, torch::nn::Embedding(words, 7));
  torch::manual_seed(4);
  auto split = on(world, nn::VocabParallelEmbedding(words, 7, world));
  torch::manual_seed(5);
  const torch::Tensor text = torch::randint(words, {4, 6}, torch::kLong).to(world.device());
  torch::Tensor labels = torch::randint(words, {4, 6}, torch::kLong).to(world.device());
  labels[1][2] = -100;
  // The embedding is also the output layer, as in GPT-2.
  const torch::Tensor expected =
      torch::cross_entropy_loss(torch::matmul(whole(text), whole->weight.t()).flatten(0, 1), labels.flatten());
  const torch::Tensor hidden = split(text);
  const torch::Tensor logits = torch::linear(hidden, split->weight);
  require(logits.size(-1) == 5, "the logits are whole");
  // `hidden` is used by every rank for its own logits: its gradients are summed by column_linear in real layers.
  const torch::Tensor got = nn::parallel_cross_entropy(logits, labels, world);
  require_near(got, expected, 1e-12, "loss");
  require_equal_everywhere(got, "loss");

  const torch::Tensor plain = doubles(world, {4, 6, words}, 9).requires_grad_();
  const torch::Tensor mine = part(plain.detach(), -1, world).contiguous().requires_grad_();
  torch::cross_entropy_loss(plain.flatten(0, 1), labels.flatten()).backward();
  nn::parallel_cross_entropy(mine, labels, world).backward();
  require_near(mine.grad(), part(plain.grad(), -1, world), 1e-12, "gradient of the logits");

  whole->zero_grad();
  whole(text).square().sum().backward();
  split->zero_grad();
  split(text).square().sum().backward();
  require_near(split->weight.grad(), part(whole->weight.grad(), 0, world), 1e-12, "gradient of the embedding");
}

// An MLP of split layers on one axis of a mesh, sharded or averaged along the other; on one rank it is whole.
struct SplitNet : torch::nn::Module {
  explicit SplitNet(const Group& group)
      : up(register_module("up",
                           nn::ColumnParallelLinear(6, 16, group, nn::ColumnParallelOptions{.gather_output = false}))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})))),
        down(register_module("down",
                             nn::RowParallelLinear(16, 4, group, nn::RowParallelOptions{.input_is_parallel = true}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return norm(down(torch::gelu(up(x)))); }
  nn::ColumnParallelLinear up;
  torch::nn::LayerNorm norm;
  nn::RowParallelLinear down;
};

struct SplitTraining {
  World world;
  Mesh mesh;
  std::shared_ptr<SplitNet> net;
  std::optional<DataParallel<std::shared_ptr<SplitNet>>> plain;
  std::optional<ShardedDataParallel<std::shared_ptr<SplitNet>>> sharded;
  std::optional<torch::optim::Adam> adam;

  SplitTraining(const World& all, const Group& ranks, int degree, std::optional<Shard> shard)
      : world(all), mesh(ranks, {{"data", -1}, {"model", degree}}) {
    torch::manual_seed(6);
    net = std::make_shared<SplitNet>(mesh["model"]);
    net->to(world.device(), torch::kDouble);
    if (shard)
      sharded.emplace(net, mesh["data"], ShardedOptions{.shard = *shard});
    else
      plain.emplace(net, mesh["data"]);
    adam.emplace(shard ? sharded->parameters() : plain->parameters(), 0.01);
  }
  void run(int from, int to) {
    for (int i = from; i < to; ++i) {
      const torch::Tensor x = share(doubles(world, {24, 6}, i), mesh["data"]);
      adam->zero_grad();
      (sharded ? sharded->forward(x) : plain->forward(x)).pow(3).mean().backward();
      norm_ = optim::clip_grad_norm(sharded ? sharded->parameters() : plain->parameters(), 0.1);
      adam->step();
    }
  }
  TrainingState state() { return {.model = *net, .optimizer = *adam}; }
  WholeModel whole() { return whole_model(state(), net->named_parameters()); }
  torch::Tensor norm_;
};

// Every layout trains as one process does, and a checkpoint of one goes on in every other.
void tensor_layouts(const World& world) {
  if (24 % world.size() != 0) return;
  std::vector<int> degrees;
  for (const int degree : {1, 2, 4})
    if (world.size() % degree == 0) degrees.push_back(degree);
  const std::string folder = broadcast_object(fmt::format("tensor_layouts.{}", getpid()), 0, world);
  SplitTraining alone(world, world.new_group({world.rank()}), 1, std::nullopt);
  alone.run(0, 10);
  const WholeModel expected = alone.whole();
  for (const int from : degrees)
    for (const std::optional<Shard> shard : {std::optional<Shard>(), std::optional(Shard::parameters)}) {
      SplitTraining first(world, world, from, shard);
      first.run(0, 5);
      { Checkpoint(folder, world).save(first.state(), {.step = 5}); }
      first.run(5, 10);
      require_near(first.norm_, alone.norm_, 1e-9, "norm of the gradients");
      require_like(world, first.whole(), expected, 1e-9, fmt::format("split over {}", from));
      for (const int to : degrees)
        for (const std::optional<Shard> other : {std::optional<Shard>(), std::optional(Shard::gradients)}) {
          SplitTraining second(world, world, to, other);
          Checkpoint(folder, world).restore(second.state());
          second.run(5, 10);
          require_like(world, second.whole(), expected, 1e-9, fmt::format("from {} to {} ranks", from, to));
        }
      barrier(world);
      if (world.rank() == 0) std::filesystem::remove_all(folder);
    }
}

void tensor_wrong_axis(const World& world) {
  if (world.size() == 1) return;
  torch::manual_seed(1);
  auto net = std::make_shared<SplitNet>(world.new_group({world.rank()}));
  DataParallel fine(net, world);
  const Group pair = world.rank() < 2 ? world.new_group({0, 1}) : Group();
  if (!pair.is_member()) return;
  auto split = std::make_shared<SplitNet>(pair);
  require_error([&] { static_cast<void>(DataParallel(split, pair)); }, "UsageError",
                {"up.weight", "split over 2 of these 2 ranks", "mesh"});
  require_error([&] { static_cast<void>(ShardedDataParallel(split, pair)); }, "UsageError", {"up.weight", "mesh"});
}

void tensor_bad_input(const World& world) {
  torch::manual_seed(1);
  const std::string ranks = fmt::format("{} ranks", world.size());
  if (world.size() > 1) {
    const int64_t odd = world.size() + 1;
    require_error([&] { nn::ColumnParallelLinear(4, odd, world); }, "UsageError",
                  {fmt::format("{} outputs", odd), ranks});
    require_error([&] { nn::RowParallelLinear(odd, 4, world); }, "UsageError", {fmt::format("{} inputs", odd), ranks});
    require_error([&] { nn::VocabParallelEmbedding(odd, 4, world); }, "UsageError",
                  {fmt::format("{} words", odd), ranks});
  }
  require_error([&] { nn::split_sequence(torch::zeros({4}), world); }, "UsageError",
                {"[batch, sequence, width]", "[4]"});
  if (world.size() > 1)
    require_error(
        [&] {
          nn::split_sequence(torch::zeros({1, world.size() + 1, 4}), world);
        },
        "UsageError", {fmt::format("sequence of {}", world.size() + 1), ranks});
  if (world.device().is_cuda()) return;  // there the numbers are checked by the GPU itself
  const nn::VocabParallelEmbedding embedding(world.size() * 2, 3, world);
  const torch::Tensor beyond = torch::full({2}, 2 * world.size(), torch::kLong);
  require_error([&] { nn::VocabParallelEmbedding(embedding)->forward(beyond); }, "UsageError",
                {fmt::format("to {}", 2 * world.size())});
  const torch::Tensor logits = torch::zeros({2, 2});
  require_error([&] { nn::parallel_cross_entropy(logits, beyond, world); }, "UsageError", {"parallel_cross_entropy"});
  require_error([&] { nn::parallel_cross_entropy(logits, torch::zeros({3}, torch::kLong), world); }, "UsageError",
                {"[2, 2]", "[3]"});
}

// As a Loader over the world gives them, to layers that no embedding stands before.
void tensor_other_inputs(const World& world) {
  if (world.size() == 1 || world.device().is_cuda()) return;  // there the GPU itself stops
  torch::manual_seed(1);
  const int64_t wide = 4 * world.size();
  nn::ColumnParallelLinear column(6, wide, world, nn::ColumnParallelOptions{.gather_output = false});
  nn::RowParallelLinear row(wide, 3, world);
  const torch::Tensor same = numbers({5, 6}, 1), other = numbers({5, 6}, 10 + world.rank());
  const auto refused = [&](const std::function<void()>& call, const std::string& layer) {
    require_error(call, "UsageError", {layer, "different inputs", "Loader", "mesh[\"data\"]"});
  };
  refused([&] { column(other); }, "ColumnParallelLinear");
  refused([&] { row(numbers({5, wide}, 20 + world.rank())); }, "RowParallelLinear");
  for (int i = 2; i < 4; ++i) column(same);
  refused([&] { column(other); }, "ColumnParallelLinear");  // the fourth
  // Kernels of other machines round differently.
  for (const torch::Dtype type : {torch::kFloat, torch::kBFloat16}) {
    const double rounding = type == torch::kFloat ? 1e-6 : 2e-3;
    const Tensors accepted{numbers({5, 6}, 1) * (1 + rounding * world.rank()), torch::zeros({5, 6}),
                           torch::zeros({0, 6}), torch::full({5, 6}, std::numeric_limits<float>::infinity())};
    for (const torch::Tensor& x : accepted) {  // each in a first call
      torch::manual_seed(2);
      nn::ColumnParallelLinear fresh(6, wide, world, nn::ColumnParallelOptions{.gather_output = false});
      fresh->to(type);
      fresh(x.to(type));
    }
  }
  torch::manual_seed(2);
  nn::RowParallelLinear parts(wide, 3, world, nn::RowParallelOptions{.input_is_parallel = true});
  parts(numbers({5, 4}, 30 + world.rank()));
}

// On a line of a mesh a rank has another number than in the world: errors name both.
void tensor_places(const World& world) {
  if (world.size() % 2 != 0) return;
  const Mesh mesh(world, {{"data", -1}, {"model", 2}});
  const Group& data = mesh["data"];
  require_error([&] { nn::ColumnParallelLinear(6, 9, mesh["model"]); }, "UsageError",
                {fmt::format("rank {} (model {} of 2): ", world.rank(), mesh.rank("model")), "9 outputs"});
  if (data.size() == 1) return;
  const int first = data.ranks().front(), last = data.ranks().back();
  const bool is_last = world.rank() == last;
  require_error(
      [&] { static_cast<void>(DataParallel<torch::nn::Linear>(torch::nn::Linear(3, is_last ? 4 : 5), data)); },
      "UsageError",
      {fmt::format("on rank {} (data 0 of {})", first, data.size()),
       fmt::format("on rank {} (data {} of {})", last, data.size() - 1, data.size())});
  const auto fail_on_last = [&] {
    if (is_last) throw UsageError("the disk is full");
  };
  require_error([&] { together(data, fail_on_last); }, "UsageError",
                {is_last ? "the disk is full" : fmt::format("rank {}: the disk is full", last)});
}

// Every rank says so, and nothing is left of such a mesh.
void tensor_mesh_misfit(const World& world) {
  const int odd = world.size() + 1;
  const auto refused = [&](const std::vector<MeshAxis>& axes, std::initializer_list<std::string> words) {
    require_error([&] { Mesh(world, axes); }, "UsageError", words);
  };
  const std::string ranks = fmt::format("{} ranks", world.size()), fix = "-1";
  refused({{"data", odd}}, {fmt::format("data {} makes {} places", odd, odd), ranks, fix});
  refused({{"data", -1}, {"model", odd}}, {fmt::format("multiply to {}", odd), ranks});
  refused({{"pipe", 2}, {"data", world.size()}}, {fmt::format("{} places", 2 * world.size()), ranks, fix});
  const Mesh mesh(world, {{"data", -1}});
  require_equal_everywhere(torch::tensor(mesh.size("data")), "sizes of a mesh after those that do not fit");
}

}  // namespace

std::vector<Case> tensor_cases() {
  return {{"tensor_mesh_misfit", tensor_mesh_misfit},   {"tensor_linear_pair", tensor_linear_pair},
          {"tensor_sequence", tensor_sequence},         {"tensor_sequence_forgotten", tensor_sequence_forgotten},
          {"tensor_without_bias", tensor_without_bias}, {"tensor_embedding_and_loss", tensor_embedding_and_loss},
          {"tensor_layouts", tensor_layouts},           {"tensor_wrong_axis", tensor_wrong_axis},
          {"tensor_other_inputs", tensor_other_inputs}, {"tensor_places", tensor_places},
          {"tensor_bad_input", tensor_bad_input}};
}

}  // namespace trireme::test
