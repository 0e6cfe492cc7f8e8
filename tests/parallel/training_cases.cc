// Training with several ranks is training with one.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>

#include "cases.h"

namespace trireme::test {
namespace {

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;
using MakeOptimizer = std::function<Optimizer(Tensors)>;

constexpr int kJoinedBatch = 16;

// 3.3 MB of parameters: two convolutions and four linear layers.
struct ConvNet : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(conv2(torch::tanh(conv1(x)))).flatten(1);
    return fc4(torch::tanh(fc3(torch::tanh(fc2(torch::tanh(fc1(x)))))));
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 4, 3));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(4, 4, 3));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(144, 600));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(600, 600));
  torch::nn::Linear fc3 = register_module("fc3", torch::nn::Linear(600, 600));
  torch::nn::Linear fc4 = register_module("fc4", torch::nn::Linear(600, 10));
};

// One weight, whose gradient is the mean of the inputs.
struct OneWeight : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return layer(x).mean(); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
};

std::map<std::string, MakeOptimizer> optimizers() {
  using namespace torch::optim;
  return {{"sgd", [](Tensors p) -> Optimizer { return std::make_unique<SGD>(p, SGDOptions(0.2)); }},
          {"momentum", [](Tensors p) -> Optimizer { return std::make_unique<SGD>(p, SGDOptions(0.05).momentum(0.9)); }},
          {"adam", [](Tensors p) -> Optimizer { return std::make_unique<Adam>(p, AdamOptions(1e-3)); }}};
}

// A net and its optimizer, trained on batches in parts: the gradients of the parts are added up.
struct Alone {
  Alone(torch::ScalarType type, const MakeOptimizer& make) {
    net->to(type);
    optimizer = make(net->parameters());
  }
  void step(const Tensors& xs, const Tensors& ys) {
    for (size_t i = 0; i < xs.size(); ++i)
      (torch::cross_entropy_loss(net->forward(xs[i]), ys[i]) / static_cast<double>(xs.size())).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  std::shared_ptr<ConvNet> net = seeded<ConvNet>();
  Optimizer optimizer;
};

double distance(const torch::nn::Module& a, const torch::nn::Module& b) {
  return ((flat(a) - flat(b)).norm() / flat(b).norm()).item<double>();
}

struct Distances {
  double ours;   // of the ranks from one process on the joined batch
  double parts;  // of one process that adds up as many parts from it: what the order of additions alone does
};

// What rank 0 trains alone beside the others: they have the same weights, bit for bit, so one comparison does for all.
struct References {
  References(torch::ScalarType type, const MakeOptimizer& make)
      : untrained(type, make), joined(type, make), in_parts(type, make) {}
  void step(const torch::Tensor& x, const torch::Tensor& y, int64_t parts) {
    joined.step({x}, {y});
    in_parts.step(x.tensor_split(parts), y.tensor_split(parts));
  }
  Alone untrained, joined, in_parts;
};

Distances train_together(const World& world, torch::ScalarType type, const std::string& name,
                         const MakeOptimizer& make) {
  auto net = seeded<ConvNet>();
  net->to(type);
  DataParallel model(net, world, {.comm_buffer_size = 1, .last_comm_buffer_size = 1});
  const Optimizer optimizer = make(model->parameters());
  std::optional<References> references;
  if (world.rank() == 0) references.emplace(type, make);
  const int64_t ranks = world.size();
  for (int step = 0; step < 100; ++step) {
    const torch::Tensor x = numbers({kJoinedBatch, 1, 10, 10}, step).to(type);
    const torch::Tensor y = torch::randint(10, {kJoinedBatch}, torch::kLong);
    torch::cross_entropy_loss(model(share(x, world)), share(y, world)).backward();
    optimizer->step();
    optimizer->zero_grad();
    if (references) references->step(x, y, ranks);
  }
  require_equal_everywhere(flat(*net), name);
  require(model.gradients().bucket_count() == (ranks == 1 ? 0 : 3),
          fmt::format("{} buckets", model.gradients().bucket_count()));
  require(model.gradients().gradient_count() == (ranks == 1 ? 0 : 12), "not all gradients are in buckets");
  const torch::Tensor distances = torch::zeros({3}, torch::kDouble);
  if (references) {
    const ConvNet& joined = *references->joined.net;
    const double all[] = {distance(*net, joined), distance(*references->in_parts.net, joined),
                          distance(joined, *references->untrained.net)};
    std::copy(std::begin(all), std::end(all), distances.data_ptr<double>());
  }
  broadcast(distances, 0, world);
  require(distances[2].item<double>() > 1e-3, name + ": hardly trained");
  return {distances[0].item<double>(), distances[1].item<double>()};
}

// With tanh, not relu: at a kink the last bit of a sum decides which way a unit goes, and Adam, which divides by the
// size of the gradients, makes much of it. One process that adds up in parts is as far from the joined batch.
void equality(const World& world) {
  for (const auto& [name, make] : optimizers()) {
    const auto [ours, parts] = train_together(world, torch::kFloat, name, make);
    require(ours <= 1e-5, fmt::format("{}: {} away from the joined batch, {} in parts", name, ours, parts));
    if (world.rank() == 0) std::cout << fmt::format("{}: {:.1e} away, {:.1e} in parts", name, ours, parts) << std::endl;
  }
}

void equality_in_double(const World& world) {
  const double ours = train_together(world, torch::kDouble, "adam", optimizers().at("adam")).ours;
  require(ours < 1e-9, fmt::format("{} away from the joined batch", ours));
}

void ways_of_calling(const World& world) {
  DataParallel model(seeded<OneWeight>(), world);
  const torch::Tensor x = torch::full({1, 1}, world.rank() + 1.0);
  const double mean = (world.size() + 1) / 2.0;
  const std::vector<std::function<torch::Tensor()>> ways = {
      [&] { return model(x); },
      [&] { return model.forward(x); },
      [&] { return model->forward(x); },
      [&] { return model->layer(x).mean(); },
      [&] { return model.module()->forward(x); },
      [&] { return torch::linear(x, model->parameters()[0]).mean(); }};
  for (size_t way = 0; way < ways.size(); ++way) {
    model->zero_grad();
    ways[way]().backward();
    require_near(model->layer->weight.grad(), torch::full({1, 1}, mean), 1e-6, fmt::format("way {}", way));
  }
  require(model.state_dict().contains("layer.weight") && model.state_dict().size() == 1, "names have a prefix");
}

// As one would write it without Trireme, and two lines: the first and the third.
std::shared_ptr<torch::nn::LinearImpl> plain_program(const torch::Tensor& rows) {
  auto world = init_parallel_env();
  auto net = seeded<torch::nn::LinearImpl>(8, 1);
  DataParallel model(net, world);
  auto data = torch::data::make_data_loader(
      torch::data::datasets::TensorDataset(rows).map(torch::data::transforms::Stack<torch::data::TensorExample>()),
      torch::data::samplers::DistributedSequentialSampler(
          static_cast<size_t>(rows.size(0)), static_cast<size_t>(world.size()), static_cast<size_t>(world.rank())),
      torch::data::DataLoaderOptions(4));
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto& batch : *data) {
      optimizer.zero_grad();
      torch::mse_loss(model(batch.data.narrow(1, 0, 8)), batch.data.narrow(1, 8, 1)).backward();
      optimizer.step();
    }
  return net;
}

void plain_libtorch_program(const World& world) {
  const torch::Tensor rows = numbers({4 * 6 * world.size(), 9}, 1);
  const auto net = plain_program(rows);
  auto alone = seeded<torch::nn::LinearImpl>(8, 1);
  torch::optim::Adam optimizer(alone->parameters(), 1e-2);
  for (int step = 0; step < 18; ++step) {
    Tensors joined;
    for (const torch::Tensor& part : rows.chunk(world.size())) joined.push_back(part.narrow(0, step % 6 * 4, 4));
    const torch::Tensor batch = torch::cat(joined);
    optimizer.zero_grad();
    torch::mse_loss(alone->forward(batch.narrow(1, 0, 8)), batch.narrow(1, 8, 1)).backward();
    optimizer.step();
  }
  require_near(flat(*net), flat(*alone), 1e-5, "a plain program");
  require_equal_everywhere(flat(*net), "a plain program");
}

torch::nn::Sequential with_batch_norm(int value) {
  torch::manual_seed(value);
  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  net[1]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(value);
  return net;
}

void construction(const World& world) {
  DataParallel model(with_batch_norm(100 + world.rank()), world);
  const auto expected = with_batch_norm(100);
  require(flat(*model.module()).equal(flat(*expected)), "parameters are not rank 0's");
  for (size_t i = 0; i < expected->buffers().size(); ++i)
    require(model->buffers()[i].equal(expected->buffers()[i]), "buffers are not rank 0's");
}

void no_trainable_parameters(const World& world) {
  auto net = seeded<OneWeight>();
  net->layer->weight.set_requires_grad(false);
  DataParallel model(net, world);
  net->layer->weight.set_requires_grad(true);
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    model(torch::full({2, net->layer->weight.size(1)}, 1.0 * world.rank())).sum().backward();
    require_equal_everywhere(net->layer->weight.grad(), "a model that was frozen when it was wrapped");
  }
  require_error([&] { static_cast<void>(DataParallel(std::make_shared<torch::nn::ReLUImpl>(), world)); }, "UsageError",
                {"no parameters"});
  require_error([&] { static_cast<void>(DataParallel(seeded<OneWeight>(), world, {.comm_buffer_size = 0})); },
                "UsageError", {"comm_buffer_size = 0"});
}

// Two layers with a difference, by its name.
std::shared_ptr<torch::nn::Module> model_with(const std::string& difference) {
  auto net = std::make_shared<torch::nn::Module>();
  net->register_module("first", torch::nn::Linear(4, 3));
  auto second = net->register_module(difference == "name" ? "zweite" : "second",
                                     torch::nn::Linear(3, difference == "shape" ? 7 : 2));
  if (difference == "count") net->register_parameter("more", torch::ones(1));
  if (difference == "dtype") second->to(torch::kDouble);
  if (difference == "gradient") second->weight.set_requires_grad(false);
  if (difference == "buffer") net->register_buffer("extra", torch::ones(5));
  return net;
}

void different_models(const World& world) {
  if (world.size() == 1) return;
  const int last = world.size() - 1;
  const std::map<std::string, std::vector<std::string>> words = {
      {"name", {"second.weight", "zweite.weight"}},        {"shape", {"[2, 3]", "[7, 3]"}},
      {"count", {"parameter more", "of 4", "has 5"}},      {"dtype", {"Float[2, 3]", "Double[2, 3]"}},
      {"gradient", {"second.weight", "without gradient"}}, {"buffer", {"nothing more", "buffer extra"}}};
  for (const auto& [difference, expected] : words) {
    const auto net = model_with(world.rank() == last ? difference : "none");
    const std::string error = error_of([&] { DataParallel model(net, world); });
    require(error.starts_with("UsageError: "), difference + ": " + error);
    for (const std::string& word : expected)
      require(error.find(word) != std::string::npos, fmt::format("{}: '{}' is not in: {}", difference, word, error));
    require(error.find(fmt::format("on rank {}", last)) != std::string::npos, error);
  }
}

void accumulation(const World& world) {
  DataParallel model(seeded<OneWeight>(), world);
  const torch::Tensor x = torch::full({1, 1}, world.rank() + 1.0);
  const auto gradient = [&] { return model->layer->weight.grad().item<double>(); };
  for (int round = 0; round < 3; ++round) {  // the first one learns, the others overlap
    model->zero_grad();
    {
      auto local = model.no_sync();
      model(x).backward();
    }
    require(gradient() == world.rank() + 1.0, "no_sync: the gradient is not local");
    model(x).backward();
    require(gradient() == world.size() + 1.0, fmt::format("two ranks: 3.0, but {}", gradient()));  // mean of 2 (r + 1)
  }
}

void accumulation_scopes(const World& world) {
  DataParallel model(seeded<OneWeight>(), world);
  const torch::Tensor x = torch::full({1, 1}, world.rank() + 1.0);
  const double mean = (world.size() + 1) / 2.0;
  const auto expect = [&](double value, const char* when) {
    model->zero_grad();
    model(x).backward();
    require(model->layer->weight.grad().item<double>() == value, when);
  };
  {
    auto outer = model.no_sync();
    {
      auto inner = model.no_sync();
      expect(world.rank() + 1, "nested");
    }
    expect(world.rank() + 1, "the inner scope ended the outer");
    auto moved = std::move(outer);
    expect(world.rank() + 1, "moved");
  }
  expect(mean, "after the scopes");
  try {
    auto local = model.no_sync();
    throw std::runtime_error("on the way");
  } catch (const std::runtime_error&) {
  }
  expect(mean, "after an exception");
}

// Running statistics of rank 0's batches on every rank, or everyone's own.
void buffers(const World& world) {
  for (const bool broadcast : {true, false}) {
    DataParallel model(with_batch_norm(5), world, {.broadcast_buffers = broadcast});
    for (int step = 0; step < 3; ++step) model(numbers({8, 4}, 10 * world.rank() + step)).sum().backward();
    const torch::Tensor mean = model.module()[1]->as<torch::nn::BatchNorm1d>()->running_mean;
    Tensors all;
    all_gather(all, mean);
    for (size_t rank = 1; rank < all.size(); ++rank)
      require(all[rank].equal(all[0]) == broadcast, fmt::format("broadcast_buffers = {}", broadcast));
  }
}

void move_the_model(const World& world) {
  DataParallel first(seeded<OneWeight>(), world);
  DataParallel model(std::move(first));
  for (int step = 0; step < 2; ++step) {
    model->zero_grad();
    model(torch::full({1, 1}, world.rank() + 1.0)).backward();
    require(model->layer->weight.grad().item<double>() == (world.size() + 1) / 2.0, "after a move");
  }
}

// A wrapper may go while the module lives on: what it had hooked into the parameters must be gone.
void the_model_goes(const World& world) {
  auto net = seeded<OneWeight>();
  const torch::Tensor x = torch::full({1, 1}, world.rank() + 1.0);
  for (int steps = 0; steps < 3; ++steps) {
    DataParallel model(net, world);
    for (int step = 0; step < steps; ++step) model(x).backward();
  }
  net->zero_grad();
  const std::string error = error_of([&] { net->forward(x).backward(); });
  require(world.size() == 1 ? error == "nothing" : error.find("is gone") != std::string::npos, error);
  require(net->layer->weight.grad().item<double>() == world.rank() + 1.0, "still averaged");
}

// ResNet50's 161 parameters, in order; 102 MB.
struct ResNet50Parameters : torch::nn::Module {
  ResNet50Parameters() {
    conv(64, 3, 7);
    int64_t in = 64;
    const int64_t depth[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage)
      for (int64_t block = 0, width = 64 << stage; block < depth[stage]; ++block, in = 4 * width) {
        conv(width, in, 1), conv(width, width, 3), conv(4 * width, width, 1);
        if (block == 0) conv(4 * width, in, 1);
      }
    add({1000, 2048}), add({1000});
  }
  void add(at::IntArrayRef sizes) { register_parameter(std::to_string(parameters().size()), torch::zeros(sizes)); }
  void conv(int64_t out, int64_t in, int64_t kernel) {
    add({out, in, kernel, kernel});
    add({out}), add({out});
  }
  torch::Tensor forward() {
    torch::Tensor sum = torch::zeros(1);
    for (const torch::Tensor& parameter : parameters()) sum = sum + parameter.flatten()[0];
    return sum;
  }
};

void resnet50_buckets(const World& world) {
  const auto net = std::make_shared<ResNet50Parameters>();
  std::vector<size_t> tensors;
  DataParallel model(net, world);
  model.set_gradient_hook([&](const GradientBucket& bucket, const Group& group) {
    tensors.push_back(bucket.gradients.size());
    return all_reduce_async(bucket.flat, ReduceOp::avg, group);
  });
  model().backward();
  if (world.size() == 1) return;
  require(model.gradients().gradient_count() == 161, "ResNet50 has 161");
  require(model.gradients().bucket_count() == 5, fmt::format("{} buckets", model.gradients().bucket_count()));
  require(tensors == std::vector<size_t>({2, 15, 12, 51, 81}),
          fmt::format("{} {} {} {} {}", tensors[0], tensors[1], tensors[2], tensors[3], tensors[4]));
}

}  // namespace

std::vector<Case> training_cases() {
  return {{"equality", equality},
          {"equality_in_double", equality_in_double},
          {"ways_of_calling", ways_of_calling},
          {"plain_libtorch_program", plain_libtorch_program},
          {"construction", construction},
          {"no_trainable_parameters", no_trainable_parameters},
          {"different_models", different_models},
          {"accumulation", accumulation},
          {"accumulation_scopes", accumulation_scopes},
          {"buffers", buffers},
          {"move_the_model", move_the_model},
          {"the_model_goes", the_model_goes},
          {"resnet50_buckets", resnet50_buckets}};
}

}  // namespace trireme::test
