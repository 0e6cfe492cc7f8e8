// GPT split over the ranks in every way is the GPT of one process.
#include <cmath>
#include <string>
#include <vector>

#include "gpt_training.h"

namespace trireme::test {
namespace {

std::vector<GptLayout> layouts(const World& world) {
  std::vector<GptLayout> all;
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

std::vector<GptLayout> named_layouts(const World& world) {
  std::vector<GptLayout> named{{},
                               {2, Shard::optimizer},
                               {2, Shard::gradients, true},
                               {4, {}, true, true},
                               {world.size() == 4 ? 2 : 4, Shard::parameters}};
  if (world.size() == 8) named.push_back({8, Shard::parameters, false, true});
  return named;
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

// Parameters, gradients and the optimizer's states are those of one process, in every layout; the norm is one number.
void gpt_layouts(const World& world) {
  const WholeModel expected = gpt_of_one_process(world);
  GptTraining data_parallel(world, {});
  data_parallel.run(0, kGptSteps);
  require_like(world, data_parallel.whole(), expected, 1e-8, "data parallel");
  for (const GptLayout& layout : wanted(layouts(world), named_layouts(world))) {
    GptTraining training(world, layout);
    training.run(0, kGptSteps);
    require_near(training.norm, data_parallel.norm, 1e-8, layout.text() + ": norm");
    require_like(world, training.whole(), expected, 1e-8, layout.text());
  }
}

// In float, to what float can.
void gpt_in_float(const World& world) {
  const WholeModel expected = gpt_of_one_process(world, torch::kFloat);
  const int all = degrees(world).back();
  for (const GptLayout& layout : std::initializer_list<GptLayout>{
           {}, {.shard = Shard::parameters}, {.model = all}, {.model = all, .sequence_parallel = true}}) {
    GptTraining training(world, layout, torch::kFloat);
    training.run(0, kGptSteps);
    require_like(world, training.whole(), expected, 1e-5, "in float: " + layout.text());
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

// On four ranks a pipe that is split over data, and one beside split layers; on eight all three axes at once.
std::vector<GptPipeline> named_gpt_pipelines(const World& world) {
  constexpr Schedule usual = Schedule::one_f_one_b;
  if (world.size() == 4) return {{2, 1, usual, Shard::parameters}, {2, 2, Schedule::zero_bubble}};
  return {{2, 2, usual, Shard::parameters}, {2, 2, Schedule::zero_bubble}, {4, 1, usual, Shard::gradients}};
}

// All axes at once train as one process does.
void gpt_pipelines(const World& world) {
  const WholeModel expected = gpt_of_one_process(world);
  for (const GptPipeline& layout : wanted(gpt_pipeline_layouts(world), named_gpt_pipelines(world))) {
    PipedGpt training(world, layout);
    training.run(0, kGptSteps);
    require_like(world, training.whole(), expected, 1e-8, layout.text());
  }
}

}  // namespace

std::vector<Case> gpt_cases() {
  return {{"gpt_is_a_gpt", gpt_is_a_gpt},   {"gpt_layouts", gpt_layouts},         {"gpt_pipelines", gpt_pipelines},
          {"gpt_in_float", gpt_in_float},   {"gpt_autocast", gpt_autocast},       {"gpt_as_layers", gpt_as_layers},
          {"gpt_generates", gpt_generates}, {"gpt_other_texts", gpt_other_texts}, {"gpt_bad_input", gpt_bad_input}};
}

}  // namespace trireme::test
