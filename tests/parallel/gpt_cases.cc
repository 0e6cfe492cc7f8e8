// GPT split over the ranks in every way is the GPT of one process.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases.h"
#include "small_gpt.h"
#include "trireme/optim/split_tensors.h"

namespace trireme::test {
namespace {

struct Layout {
  int model = 1;
  std::optional<Shard> shard = {};
  bool sequence_parallel = false;
  bool recompute = false;

  std::string describe() const {
    return fmt::format("model {}, shard {}, sequence_parallel {}, recompute {}", model,
                       shard ? std::to_string(static_cast<int>(*shard) + 1) : "none", sequence_parallel, recompute);
  }
};

// A GPT in one layout. In double, so that the order of sums does not matter.
struct GptTraining {
  World world;
  Mesh mesh;
  models::Gpt net = nullptr;
  std::optional<DataParallel<models::Gpt>> plain;
  std::optional<ShardedDataParallel<models::Gpt>> sharded;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  torch::Tensor norm;

  GptTraining(const World& ranks, const Layout& layout, const torch::Dtype type = torch::kDouble)
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
    if (type == torch::kDouble)
      optimizer = std::make_unique<torch::optim::Adam>(parameters(), torch::optim::AdamOptions(0.01));
    else  // Adam would make steps of one size of gradients that are rounding errors, such as those of the keys' bias
      optimizer = std::make_unique<torch::optim::SGD>(parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  }
  Tensors parameters() { return sharded ? sharded->parameters() : plain->parameters(); }

  void run(int from, int to) {
    for (int i = from; i < to; ++i) {
      const Text all = text(world, 100 + i);
      net->loss(share(all.x, mesh["data"]), share(all.y, mesh["data"])).backward();
      norm = optim::clip_grad_norm(parameters(), 0.5);
      optimizer->step();
      if (i + 1 < to) optimizer->zero_grad();
    }
  }
  TrainingState state() { return {.model = *net, .optimizer = *optimizer}; }

  // A number for each number of the model, of the whole model: parameters or their gradients.
  Tensors whole_parameters() {
    std::optional<GatheredParameters> held;
    if (sharded) held.emplace(sharded->gathered());
    Tensors all;
    for (const torch::Tensor& parameter : net->parameters()) {
      const auto how = optim::split_of(parameter);
      all.push_back((how ? how->whole(parameter) : parameter).detach().clone());
    }
    return all;
  }
  Tensors whole_gradients() {
    Tensors all;
    for (const torch::Tensor& parameter : net->parameters()) {
      const torch::Tensor piece = optim::piece_of(parameter);
      const auto how = optim::split_of(parameter);
      all.push_back((how ? how->join(piece, piece.grad()) : piece.grad()).detach().clone());
    }
    return all;
  }
};

std::vector<int> degrees(const World& world) {
  std::vector<int> all;
  for (const int degree : {1, 2, 4, 8})
    if (world.size() % degree == 0) all.push_back(degree);
  return all;
}

std::vector<Layout> layouts(const World& world) {
  std::vector<Layout> all;
  for (const int model : degrees(world))
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && model == 1) continue;
      for (const std::optional<Shard> shard : {std::optional<Shard>(), std::optional(Shard::optimizer),
                                               std::optional(Shard::gradients), std::optional(Shard::parameters)})
        all.push_back({model, shard, sequence_parallel});
      all.push_back({.model = model, .sequence_parallel = sequence_parallel, .recompute = true});
      all.push_back({model, Shard::parameters, sequence_parallel, true});
    }
  return all;
}

// The model of one process, written with torch's own layers and no ranks.
torch::Tensor plain_logits(const models::Gpt& net, const torch::Tensor& tokens) {
  const models::GptOptions& options = net->options();
  const auto p = net->named_parameters();
  const auto norm = [&](const torch::Tensor& x, const std::string& name) {
    return torch::layer_norm(x, {options.width}, p[name + ".weight"], p[name + ".bias"]);
  };
  const auto linear = [&](const torch::Tensor& x, const std::string& name) {
    return torch::linear(x, p[name + ".weight"], p[name + ".bias"]);
  };
  const int64_t length = tokens.size(1), size = options.width / options.heads;
  torch::Tensor x =
      torch::embedding(p["embedding.tokens.weight"], tokens) + p["embedding.positions"].slice(0, 0, length);
  const torch::Tensor later = torch::ones({length, length}, torch::kBool).triu(1).to(x.device());
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string block = fmt::format("block{}.", i);
    const torch::Tensor qkv =
        linear(norm(x, block + "attention_norm"), block + "qkv").view({tokens.size(0), length, options.heads, 3, size});
    const auto part = [&](int64_t which) { return qkv.select(3, which).transpose(1, 2); };
    const torch::Tensor scores =
        torch::matmul(part(0), part(1).transpose(-1, -2)) / std::sqrt(static_cast<double>(size));
    const torch::Tensor weights = torch::softmax(scores.masked_fill(later, -1e30), -1);
    x = x + linear(torch::matmul(weights, part(2)).transpose(1, 2).reshape({tokens.size(0), length, options.width}),
                   block + "project");
    x = x + linear(torch::gelu(linear(norm(x, block + "mlp_norm"), block + "up"), "tanh"), block + "down");
  }
  return torch::matmul(norm(x, "head.norm"), p["embedding.tokens.weight"].t());
}

void gpt_is_a_gpt(const World& world) {
  torch::manual_seed(1);
  models::Gpt net = models::gpt(small(false));
  net->to(world.device(), torch::kDouble);
  const auto [x, y] = text(world, 5);
  const torch::Tensor expected = plain_logits(net, x);
  require_near(net(x), expected, 1e-12, "logits");
  require_near(net->loss(x, y), torch::cross_entropy_loss(expected.flatten(0, 1), y.flatten()), 1e-12, "loss");
  require(net->parameters().size() == 2 + 2 * 12 + 2, "the embeddings are not tied");
  require(std::abs(net->blocks[0]->qkv->weight.std().item<double>() - 0.02) < 0.002, "std of the weights");
  require(std::abs(net->blocks[0]->down->weight.std().item<double>() - 0.01) < 0.001, "std of the residual weights");
  require(net->blocks[0]->up->bias.abs().max().item<double>() == 0, "biases");
}

// Ten steps of Adam with clipping: parameters, gradients and the norm are those of one process, in every layout.
void gpt_layouts(const World& world) {
  GptTraining expected(world, {});
  {
    // Data parallelism alone is proven elsewhere; here against one process with the whole batch.
    const Group self = world.new_group({world.rank()});
    torch::manual_seed(11);
    models::Gpt net = models::gpt(small(false), self);
    net->to(world.device(), torch::kDouble);
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
    for (int i = 0; i < 10; ++i) {
      const auto [x, y] = text(world, 100 + i);
      adam.zero_grad();
      net->loss(x, y).backward();
      optim::clip_grad_norm(net->parameters(), 0.5);
      adam.step();
    }
    expected.run(0, 10);
    require_all_near(expected.whole_parameters(), net->parameters(), 1e-8, "data parallel and one process");
  }
  const Tensors parameters = expected.whole_parameters(), gradients = expected.whole_gradients();
  for (const Layout& layout : layouts(world)) {
    GptTraining training(world, layout);
    training.run(0, 10);
    require_near(training.norm, expected.norm, 1e-8, layout.describe() + ": norm");
    require_all_near(training.whole_gradients(), gradients, 1e-7, layout.describe() + ": gradients");
    require_all_near(training.whole_parameters(), parameters, 1e-8, layout.describe() + ": parameters");
  }
}

// In float, to what float can.
void gpt_in_float(const World& world) {
  GptTraining expected(world, {}, torch::kFloat);
  expected.run(0, 10);
  for (const bool sequence_parallel : {false, true}) {
    GptTraining training(world, {.model = degrees(world).back(), .sequence_parallel = sequence_parallel},
                         torch::kFloat);
    training.run(0, 10);
    require_all_near(training.whole_parameters(), expected.whole_parameters(), 1e-5, "parameters in float");
  }
}

// Forward in bfloat16: every parameter gets its gradient, and that of one process to bfloat16's precision.
void gpt_autocast(const World& world) {
  const auto gradients = [&](const Group& group, bool sequence_parallel, bool recompute) {
    torch::manual_seed(12);
    models::GptOptions options = small(sequence_parallel);
    options.recompute = recompute;
    models::Gpt net = models::gpt(options, group);
    net->to(world.device());
    const auto [x, y] = text(world, 3);
    torch::Tensor loss;
    {
      const optim::Autocast low({.device = world.device().type(), .dtype = torch::kBFloat16});
      loss = net->loss(x, y);
    }
    loss.backward();
    Tensors all;
    for (const torch::Tensor& parameter : net->parameters()) {
      require(parameter.grad().defined() && parameter.grad().scalar_type() == torch::kFloat, "a float gradient");
      const auto how = optim::split_of(parameter);
      all.push_back(how ? how->join(parameter, parameter.grad()) : parameter.grad());
    }
    return torch::cat({all[0].flatten(), all[1].flatten(), all[4].flatten(), all.back().flatten()});
  };
  const torch::Tensor expected = gradients(world.new_group({world.rank()}), false, false);
  for (const bool sequence_parallel : {false, true})
    for (const bool recompute : {false, true})
      require_near(gradients(world, sequence_parallel, recompute), expected, 0.03, "gradients in bfloat16");
}

// A checkpoint of one layout restored into another has the same bits, parameters and optimizer states.
void gpt_checkpoints(const World& world) {
  const std::string folder = broadcast_object(fmt::format("gpt_checkpoints.{}", getpid()), 0, world);
  const std::string again = folder + ".again";
  const auto saved = [](const std::string& where) {
    const std::filesystem::path newest = std::filesystem::path(where) / "step_000000003";
    return std::pair(io::load_safetensors(newest / "model.safetensors"),
                     io::load_safetensors(newest / "optimizer.safetensors"));
  };
  std::vector<Layout> all;
  for (const int model : degrees(world)) all.push_back({model, Shard::parameters, model > 1});
  for (const int model : degrees(world)) all.push_back({.model = model});
  for (const Layout& from : all) {
    GptTraining first(world, from);
    first.run(0, 3);
    { Checkpoint(folder, world).save(first.state(), {.step = 3}); }
    for (const Layout& to : all) {
      GptTraining second(world, to);
      Checkpoint(folder, world).restore(second.state());
      { Checkpoint(again, world).save(second.state(), {.step = 3}); }
      if (world.rank() == 0) {
        const auto [model, optimizer] = saved(folder);
        const auto [same_model, same_optimizer] = saved(again);
        for (const auto& item : model)
          require(same_model[item.key()].equal(item.value()), item.key() + ": other bits, " + to.describe());
        require(optimizer.size() == same_optimizer.size() && optimizer.size() > model.size(), "optimizer states");
        for (const auto& item : optimizer)
          require(same_optimizer[item.key()].equal(item.value()), item.key() + ": other bits, " + to.describe());
        std::filesystem::remove_all(again);
      }
      barrier(world);
    }
    if (world.rank() == 0) std::filesystem::remove_all(folder);
    barrier(world);
  }
}

// The list of layers is the network, whichever of them are made.
void gpt_as_layers(const World& world) {
  for (const bool sequence_parallel : {false, true}) {
    torch::manual_seed(3);
    models::Gpt net = models::gpt(small(sequence_parallel), world);
    torch::manual_seed(3);
    const std::vector<models::NetworkLayer> layers = models::gpt_layers(small(sequence_parallel), world);
    require(layers.size() == 4 && layers[0].name == "embedding" && layers[2].name == "block1" &&
                layers[3].name == "head" && layers[3].tied.at("tokens.weight") == "embedding.tokens.weight",
            "names of the layers");
    const auto parameters = net->named_parameters();
    torch::Tensor x = text(world, 8).x.cpu();
    const torch::Tensor expected = net(x);
    for (size_t i = layers.size(); i-- > 0;) {  // from the last to the first: the order must not matter
      const auto layer = layers[i].make();
      for (const auto& item : layer->named_parameters()) {
        const auto tied = layers[i].tied.find(item.key());
        const std::string name = tied == layers[i].tied.end() ? layers[i].name + "." + item.key() : tied->second;
        require(item.value().equal(parameters[name]), name + ": other weights");
      }
    }
    for (const models::NetworkLayer& layer : layers) x = layer.make()->forward(x);
    require_near(x, expected, 1e-6, "the layers in a row");
  }
}

void gpt_generates(const World& world) {
  // A few steps on one sentence; then it can say it by heart, split in any way.
  const std::string sentence = "abcdefghabcdefghabcdefgh";
  for (const bool sequence_parallel : {false, true}) {
    torch::manual_seed(4);
    models::Gpt net = models::gpt(small(sequence_parallel), world);
    net->to(world.device());
    Tensors numbers;
    for (const char letter : sentence) numbers.push_back(torch::tensor(int64_t{letter} - 'a'));
    const torch::Tensor all = torch::stack(numbers).unsqueeze(0).to(world.device());
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
    for (int i = 0; i < 60; ++i) {
      adam.zero_grad();
      net->loss(all.slice(1, 0, 16), all.slice(1, 1, 17)).backward();
      adam.step();
    }
    // Beyond the context, from a prompt that the ranks do not divide.
    net->blocks[0]->eval();  // frozen, say
    const torch::Tensor said = net->generate(all.slice(1, 0, 3), 18, 0);
    require(!net->blocks[0]->is_training() && net->blocks[1]->is_training(), "generate() changes the mode of a layer");
    net->train();
    require(said.equal(all.slice(1, 0, 21)), "it says " + c10::str(said.cpu()));
    require(net->is_training(), "generate() leaves the mode as it was");
    const torch::Tensor drawn = net->generate(all.slice(1, 0, 3), 8, 5.0);
    require_equal_everywhere(drawn, "what is drawn");
    require_equal_everywhere(torch::rand(3), "random numbers after generate()");
    require(drawn.lt(kWords).all().item<bool>() && drawn.size(1) == 11, "what is drawn");
  }
}

// As a Loader over the world gives them.
void gpt_other_texts(const World& world) {
  if (world.size() == 1 || world.device().is_cuda()) return;
  torch::manual_seed(1);
  models::Gpt net = models::gpt(small(false), world);
  const Text all = text(world, 1);
  const torch::Tensor mine = all.x.clone();
  mine[1][1] = (mine[1][1] + world.rank()) % kWords;
  require_error([&] { net->loss(mine, all.y); }, "UsageError", {"VocabParallelEmbedding", "mesh[\"data\"]"});
  require_error([&] { net->loss(all.x, mine); }, "UsageError", {"parallel_cross_entropy", "mesh[\"data\"]"});
  // Two tokens exchanged.
  const torch::Tensor turned = world.rank() == 0 ? all.x : all.x.flip({1});
  require_error([&] { net(turned); }, "UsageError", {"different inputs"});
}

void gpt_bad_input(const World& world) {
  torch::manual_seed(1);
  const int ranks = world.size();
  const std::string among = fmt::format("{} ranks", ranks);
  const auto refused = [&](const models::GptOptions& options, std::initializer_list<std::string> words) {
    require_error([&] { models::gpt(options, world); }, "UsageError", words);
  };
  if (ranks > 1) {
    refused({.vocabulary = 8 * ranks + 1, .width = 8, .heads = ranks},
            {fmt::format("vocabulary of {}", 8 * ranks + 1), among, fmt::format("take {}", 9 * ranks)});
    refused({.vocabulary = 8 * ranks, .width = 8 * (ranks + 1), .heads = ranks + 1},
            {fmt::format("{} heads", ranks + 1), among});
  }
  refused({.vocabulary = 8 * ranks, .width = 10, .heads = 3}, {"3 heads", "width of 10"});
  refused({.vocabulary = 8 * ranks, .layers = 0}, {"layers is 0"});
  refused({.vocabulary = 8 * ranks, .width = 8 * ranks, .heads = ranks, .dropout = 1}, {"dropout is 1"});
  models::Gpt net = models::gpt(small(true), world);
  const auto long_text = torch::zeros({1, kContext + 1}, torch::kLong);
  require_error([&] { net(long_text); }, "UsageError", {"17 tokens", "context of 16"});
  require_error([&] { net(torch::zeros({3}, torch::kLong)); }, "UsageError", {"[batch, sequence]", "[3]"});
  if (ranks > 1)
    require_error(
        [&] {
          net(torch::zeros({1, ranks + 1}, torch::kLong));
        },
        "UsageError", {fmt::format("sequence of {}", ranks + 1), among});
  require_error(
      [&] {
        net->loss(torch::zeros({1, 8}, torch::kLong), torch::zeros({1, 7}, torch::kLong));
      },
      "UsageError", {"[1, 8]", "[1, 7]"});
  require_error([&] { net->generate(torch::zeros({1, 0}, torch::kLong), 1); }, "UsageError", {"[1, 0]"});
  require_error([&] { net->generate(torch::zeros({1, 1}, torch::kLong), 1, -1); }, "UsageError", {"temperature is -1"});
}

std::vector<PipelineLayer> gpt_pipeline(const Mesh& mesh) {
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

std::vector<GptPipeline> gpt_pipeline_layouts(const World& world, int parts) {
  std::vector<GptPipeline> all;
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

void train_like(const std::map<std::string, torch::Tensor>& expected, const World& world, const GptPipeline& layout) {
  Mesh mesh(world, {{"pipe", layout.stages}, {"data", -1}, {"model", layout.parts}});
  const auto loss_of = [&](const torch::Tensor& logits, const torch::Tensor& targets) {
    return nn::parallel_cross_entropy(logits, targets, mesh["model"]);
  };
  PipelineOptions options{.micro_batches = static_cast<int>(kBatch) / world.size(),
                          .schedule = layout.schedule,
                          .loss = loss_of,
                          .device = world.device(),
                          .data = mesh["data"]};
  if (layout.shard) options.shard = ShardedOptions{.shard = *layout.shard};
  Pipeline pipe(gpt_pipeline(mesh), mesh["pipe"], options);
  torch::optim::Adam adam(pipe.parameters(), 0.01);
  for (int i = 0; i < 5; ++i) {
    const Text all = text(world, 100 + i);
    pipe.train_batch(share(all.x, mesh["data"]), share(all.y, mesh["data"]), adam, {.clip_norm = 0.5});
  }
  for (const auto& item : pipe->named_parameters()) {
    const auto how = optim::split_of(item.value());
    const std::shared_ptr<void> held = how ? how->hold() : nullptr;
    const torch::Tensor got = how ? how->whole(item.value()) : item.value();
    require_near(got.cpu(), expected.at(item.key()).cpu(), 1e-8, fmt::format("{} of {}", item.key(), layout.text()));
  }
}

// All axes at once, against the layouts of gpt_layouts, which are those of one process.
void gpt_pipelines(const World& world) {
  for (const int parts : {1, 2}) {
    if (world.size() % parts != 0) continue;
    GptTraining expected(world, {.model = parts});
    expected.run(0, 5);
    const Tensors values = expected.whole_parameters();
    std::map<std::string, torch::Tensor> by_name;
    for (const auto& item : expected.net->named_parameters()) by_name[item.key()] = values[by_name.size()];
    by_name["head.tokens.weight"] = by_name.at("embedding.tokens.weight");
    for (const GptPipeline& layout : gpt_pipeline_layouts(world, parts)) train_like(by_name, world, layout);
  }
}

}  // namespace

std::vector<Case> gpt_cases() {
  return {{"gpt_is_a_gpt", gpt_is_a_gpt},   {"gpt_layouts", gpt_layouts},     {"gpt_pipelines", gpt_pipelines},
          {"gpt_in_float", gpt_in_float},   {"gpt_autocast", gpt_autocast},   {"gpt_checkpoints", gpt_checkpoints},
          {"gpt_as_layers", gpt_as_layers}, {"gpt_generates", gpt_generates}, {"gpt_other_texts", gpt_other_texts},
          {"gpt_bad_input", gpt_bad_input}};
}

}  // namespace trireme::test
