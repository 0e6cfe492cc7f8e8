// Layers that lie on the ranks one after the other train as one process does.
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "cases.h"
#include "trireme/io/optimizer_state.h"
#include "whole_model.h"

namespace trireme::test {
namespace {

constexpr int64_t kPipelineRows = 24;

torch::Tensor doubles_like(at::IntArrayRef sizes, int seed) {
  return numbers(sizes, seed).to(torch::kDouble);
}

template <typename Module>
Module in_double(Module module) {
  module->to(torch::kDouble);
  return module;
}

torch::Tensor square_error(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

PipelineLayer linear(const std::string& name, int64_t in, int64_t out, const LayerOptions& options = {}) {
  return {name, [=] { return in_double(torch::nn::Linear(in, out)); }, options};
}
PipelineLayer tanh_layer(const std::string& name) {
  return {name, [] { return torch::nn::Tanh(); }};
}

// Thirteen layers: enough for four ranks with three chunks each.
std::vector<PipelineLayer> mlp(const LayerOptions& options = {}) {
  std::vector<PipelineLayer> layers{linear("in", 6, 10, options)};
  for (int i = 0; i < 5; ++i) {
    layers.push_back(tanh_layer(fmt::format("tanh{}", i)));
    layers.push_back(linear(fmt::format("fc{}", i), 10, 10, options));
  }
  layers.push_back(tanh_layer("tanh5"));
  layers.push_back(linear("out", 10, 3));
  return layers;
}

// Convolutions with a skip connection and numbers beside them: several tensors of several types between the stages.
struct FirstConvolution : torch::nn::Module {
  FirstConvolution() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3).padding(1)));
  }
  std::vector<torch::Tensor> forward(const torch::Tensor& x) {
    return {conv(x), x.detach().gt(0).to(torch::kLong).flatten(1).sum(1)};
  }
  torch::nn::Conv2d conv = nullptr;
};
struct SkipConvolution : torch::nn::Module {
  SkipConvolution() { conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1))); }
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& count) {
    return {x + torch::tanh(conv(x)), count};
  }
  torch::nn::Conv2d conv = nullptr;
};
struct LastLayer : torch::nn::Module {
  LastLayer() { fc = register_module("fc", torch::nn::Linear(4, 3)); }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& count) {
    return fc(x.mean({2, 3}) * (1 + count.unsqueeze(1) * 0.01));
  }
  torch::nn::Linear fc = nullptr;
};

std::vector<PipelineLayer> convolutions() {
  std::vector<PipelineLayer> layers{{"begin", [] { return in_double(std::make_shared<FirstConvolution>()); }}};
  for (int i = 0; i < 7; ++i)
    layers.push_back({fmt::format("middle{}", i), [] { return in_double(std::make_shared<SkipConvolution>()); }});
  layers.push_back({"end", [] { return in_double(std::make_shared<LastLayer>()); }});
  return layers;
}

// A language model in small: the embedding is the output layer too.
struct Unembed : torch::nn::Module {
  Unembed() { weight = register_parameter("weight", torch::randn({11, 6})); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::linear(x, weight); }
  torch::Tensor weight;
};
std::vector<PipelineLayer> tied_words() {
  std::vector<PipelineLayer> layers{{"embed", [] { return in_double(torch::nn::Embedding(11, 6)); }}};
  for (int i = 0; i < 6; ++i) layers.push_back(linear(fmt::format("fc{}", i), 6, 6));
  layers.push_back(
      {"middle", [] { return in_double(std::make_shared<Unembed>()); }, {.tied = {{"weight", "embed.weight"}}}});
  layers.push_back(linear("back", 11, 6));
  layers.push_back(
      {"head", [] { return in_double(std::make_shared<Unembed>()); }, {.tied = {{"weight", "embed.weight"}}}});
  return layers;
}

// These compare with one process on the CPU, on ranks that have a GPU too.
struct CpuPipeline : Pipeline {
  static PipelineOptions on_cpu(PipelineOptions options) {
    options.device = torch::kCPU;
    return options;
  }
  CpuPipeline(const std::vector<PipelineLayer>& layers, const Group& group, const PipelineOptions& options)
      : Pipeline(layers, group, on_cpu(options)) {}
};

// The whole batch of a step, the same on all ranks.
using PipelineData = std::function<std::pair<torch::Tensor, torch::Tensor>(int step)>;
std::pair<torch::Tensor, torch::Tensor> plain_data(int step) {
  return {doubles_like({kPipelineRows, 6}, step), doubles_like({kPipelineRows, 3}, 100 + step)};
}
std::pair<torch::Tensor, torch::Tensor> image_data(int step) {
  return {doubles_like({kPipelineRows, 2, 5, 5}, step), doubles_like({kPipelineRows, 3}, 100 + step)};
}
std::pair<torch::Tensor, torch::Tensor> word_data(int step) {
  torch::manual_seed(step);
  return {torch::randint(11, {kPipelineRows}, torch::kLong), torch::randint(11, {kPipelineRows}, torch::kLong)};
}
torch::Tensor word_loss(const torch::Tensor& scores, const torch::Tensor& words) {
  return torch::cross_entropy_loss(scores, words);
}

struct PipelineNet {
  std::vector<PipelineLayer> layers;
  PipelineData data;
  PipelineLoss loss;
};
PipelineNet mlp_net() {
  return {mlp(), plain_data, square_error};
}
PipelineNet image_net() {
  return {convolutions(), image_data, square_error};
}
PipelineNet word_net() {
  return {tied_words(), word_data, word_loss};
}

// One process that knows no pipeline: the layers, with the weights that the seed gives, and tied ones as one tensor.
class OneProcess {
 public:
  OneProcess(const PipelineNet& net, const World& world, double clip = 0) : net_(net), clip_(clip) {
    CpuPipeline seeded(net.layers, world.new_group({world.rank()}), {.loss = net.loss});
    const auto weights = seeded->named_parameters();
    for (const PipelineLayer& layer : net.layers) {
      parts_.push_back(layer.make());
      for (auto& item : parts_.back().module->named_parameters()) {
        const std::string name = layer.name() + "." + item.key();
        item.value().set_data(weights[name].detach().clone());
        const auto tie = layer.options().tied.find(item.key());
        if (tie != layer.options().tied.end())
          copies_.emplace_back(named_.at(tie->second), item.value());
        else
          owners_.insert(name, item.value());
        named_.emplace(name, item.value());
      }
    }
    for (auto& [owner, copy] : copies_) copy.set_data(owner.data());
    adam_.emplace(owners_.values(), 0.01);
  }
  torch::Tensor loss(const torch::Tensor& x, const torch::Tensor& y) {
    Tensors tensors{x};
    for (detail::LayerModule& part : parts_) tensors = part.forward(tensors);
    return net_.loss(tensors, {y});
  }
  double step(int step) {
    const auto [x, y] = net_.data(step);
    adam_->zero_grad();
    const torch::Tensor value = loss(x, y);
    value.backward();
    for (auto& [owner, copy] : copies_) {
      owner.mutable_grad() = owner.grad() + copy.grad();
      copy.mutable_grad() = torch::Tensor();
    }
    if (clip_ > 0) norm = optim::clip_grad_norm(owners_.values(), clip_).item<double>();
    adam_->step();
    return value.item<double>();
  }
  void run(int from, int to) {
    for (int i = from; i < to; ++i) losses.push_back(step(i));
  }
  const torch::Tensor& operator[](const std::string& name) const { return named_.at(name); }
  // As the last step has left it.
  WholeModel whole() const {
    WholeModel result;
    result.parameters = owners_;
    result.states = states_of(io::optimizer_state(*adam_, owners_));
    for (const auto& item : owners_) result.gradients.insert(item.key(), item.value().grad());
    return result;
  }

  double norm = 0;
  std::vector<double> losses;

 private:
  PipelineNet net_;
  double clip_;
  std::vector<detail::LayerModule> parts_;
  std::map<std::string, torch::Tensor> named_;
  io::TensorMap owners_;  // what is tied, once
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies_;
  std::optional<torch::optim::Adam> adam_;
};

struct PipelineLayout {
  int degree = 1;  // of the pipe axis; the rest is data
  PipelineOptions options = {};
  std::string text() const {
    return fmt::format("pipe {}, schedule {}, chunks {}, micro-batches {}, shard {}", degree,
                       static_cast<int>(options.schedule), options.chunks, options.micro_batches,
                       options.shard ? static_cast<int>(options.shard->shard) + 1 : 0);
  }
};

std::vector<int> degrees_of(const World& world) {
  std::vector<int> degrees;
  for (const int degree : {1, 2, 4})
    if (world.size() % degree == 0) degrees.push_back(degree);
  return degrees;
}

std::vector<PipelineLayout> layouts(const World& world, const std::vector<int>& micro_batches, int most_chunks) {
  std::vector<PipelineLayout> all;
  for (const int degree : degrees_of(world))
    for (const int count : micro_batches) {
      if (count > kPipelineRows * degree / world.size()) continue;  // a micro-batch has a row at least
      for (const Schedule schedule : {Schedule::fill_drain, Schedule::one_f_one_b, Schedule::zero_bubble})
        all.push_back({degree, {.micro_batches = count, .schedule = schedule}});
      for (int chunks = 2; chunks <= most_chunks; ++chunks)
        all.push_back({degree, {.micro_batches = count, .schedule = Schedule::interleaved, .chunks = chunks}});
    }
  return all;
}

// A pipeline over one axis of a mesh, the other averages.
struct PipelineTraining {
  World world;
  PipelineNet net;
  Mesh mesh;
  CpuPipeline pipe;
  torch::optim::Adam adam;

  PipelineTraining(const World& ranks, const PipelineNet& what, const PipelineLayout& layout)
      : world(ranks),
        net(what),
        mesh(ranks, {{"pipe", layout.degree}, {"data", -1}}),
        pipe(what.layers, mesh["pipe"], with(layout.options)),
        adam(pipe.parameters(), 0.01) {}
  PipelineOptions with(PipelineOptions options) const {
    options.loss = net.loss;
    options.data = mesh["data"];
    return options;
  }
  std::pair<torch::Tensor, torch::Tensor> batch(int step) const {
    const auto [x, y] = net.data(step);
    return {share(x, mesh["data"]), share(y, mesh["data"])};
  }
  std::vector<double> run(int from, int to, const PipelineStepOptions& options = {}) {
    std::vector<double> losses;
    for (int i = from; i < to; ++i) {
      const auto [x, y] = batch(i);
      losses.push_back(pipe.train_batch(x, y, adam, options).item<double>());
    }
    return losses;
  }
  // A step whose gradients stay.
  double run_by_hand(int step) {
    const auto [x, y] = batch(step);
    const double loss = pipe.accumulate(x, y).item<double>();
    adam.step();
    return loss;
  }
  void require_like(const OneProcess& expected, const std::string& what, double tolerance = 1e-8) {
    for (const auto& item : pipe->named_parameters())
      require_near(item.value(), expected[item.key()], tolerance, fmt::format("{}: {}", what, item.key()));
  }
  TrainingState state() { return {.model = pipe, .optimizer = adam}; }
};

void require_same_losses(const std::vector<double>& got, const std::vector<double>& expected, const std::string& what) {
  require(got.size() == expected.size(), what);
  for (size_t i = 0; i < got.size(); ++i)
    require(std::abs(got[i] - expected[i]) <= 1e-8 * std::abs(expected[i]),
            fmt::format("{}: loss {} of step {} is not {}", what, got[i], i, expected[i]));
}

void trains_like_one_process(const World& world, const PipelineNet& net, const std::vector<PipelineLayout>& all) {
  if (kPipelineRows % world.size() != 0) return;
  OneProcess expected(net, world);
  expected.run(0, 10);
  const WholeModel whole = expected.whole();
  for (const PipelineLayout& layout : wanted(all)) {
    PipelineTraining training(world, net, layout);
    std::vector<double> losses = training.run(0, 9);
    losses.push_back(training.run_by_hand(9));
    require_same_losses(losses, expected.losses, layout.text());
    training.require_like(expected, layout.text());
    test::require_like(world, whole_model(training.state(), training.pipe.named_parameters()), whole, 1e-8,
                       layout.text());
    require_equal_everywhere(torch::tensor(losses, torch::kDouble), "losses");
  }
}

void pipeline_schedules(const World& world) {
  trains_like_one_process(world, mlp_net(), layouts(world, {1, 5}, 3));
}
void pipeline_several_tensors(const World& world) {
  trains_like_one_process(world, image_net(), layouts(world, {4}, 2));
}
void pipeline_tied(const World& world) {
  trains_like_one_process(world, word_net(), layouts(world, {3}, 2));
}

// The layers of each stage split over the data axis, on the three levels.
std::vector<PipelineLayout> sharded(const std::vector<PipelineLayout>& all) {
  std::vector<PipelineLayout> result;
  for (PipelineLayout layout : all)
    for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::parameters}) {
      layout.options.shard = ShardedOptions{.shard = shard, .unit_size = 1};
      result.push_back(layout);
    }
  return result;
}

// Ends that are tied; each is on a rank of its own in a pipeline of at least two.
PipelineNet tied_ends() {
  std::vector<PipelineLayer> layers = tied_words();
  std::erase_if(layers, [](const PipelineLayer& layer) { return layer.name() == "middle" || layer.name() == "back"; });
  return {layers, word_data, word_loss};
}

void pipeline_sharded(const World& world) {
  trains_like_one_process(world, mlp_net(), sharded(layouts(world, {3}, 2)));
  std::vector<PipelineLayout> apart = sharded(layouts(world, {3}, 1));
  std::erase_if(apart, [](const PipelineLayout& layout) { return layout.degree == 1; });
  trains_like_one_process(world, tied_ends(), apart);
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
  for (const PipelineLayout& layout : sharded(layouts(world, {2}, 1))) {
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
  trains_like_one_process(world, {mlp({.recompute = true}), plain_data, square_error}, layouts(world, {3}, 2));
}

// Stages that begin or end with an operation that changes its input.
struct HalvingLayer : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x.mul_(0.5); }
};
void pipeline_in_place(const World& world) {
  std::vector<PipelineLayer> layers{linear("in", 6, 10)};
  for (int i = 0; i < 4; ++i) {
    layers.push_back({fmt::format("halve{}", i), [] { return std::make_shared<HalvingLayer>(); }});
    layers.push_back({fmt::format("relu{}", i), [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); }});
    layers.push_back(linear(fmt::format("fc{}", i), 10, 10));
  }
  layers.push_back(linear("out", 10, 3));
  trains_like_one_process(world, {layers, plain_data, square_error}, layouts(world, {3}, 3));
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
    for (const PipelineLayout& layout : layouts(world, {3}, 2)) {
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
  for (const PipelineLayout& layout : layouts(world, {2}, 2))
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
  for (const PipelineLayout& layout : layouts(world, {5}, 3)) {
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
  std::vector<PipelineLayer> changing{linear("in", 6, 6),
                                      {"change", [] { return std::make_shared<StretchingLayer>(); }},
                                      {"fold", [] { return std::make_shared<FoldingLayer>(); }},
                                      linear("out", 6, 3)};
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
  std::vector<PipelineLayer> heavy{linear("a", 6, 500), linear("b", 500, 6), linear("c", 6, 6), linear("d", 6, 3)};
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
    std::vector<PipelineLayer> layers{linear("in", 6, 6)};
    for (int i = 0; i < 3; ++i)
      layers.push_back(
          {fmt::format("block{}", i), [group] { return in_double(std::make_shared<StagedBlock>(group)); }});
    layers.push_back(linear("out", 6, 3));
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

void pipeline_checkpoint(const World& world) {
  if (kPipelineRows % world.size() != 0) return;
  const std::string folder = broadcast_object(fmt::format("pipeline_checkpoint.{}", getpid()), 0, world);
  for (const PipelineNet& net : {mlp_net(), word_net()}) {
    OneProcess expected(net, world);
    expected.run(0, 6);
    std::vector<PipelineLayout> all = layouts(world, {3}, 2);
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
  const std::vector<PipelineLayer> layers{linear("a", 6, 5), tanh_layer("b"), linear("c", 5, 4), linear("d", 4, 3)};
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

void pipeline_bad_options(const World& world) {
  const Mesh mesh(world, {{"pipe", -1}});
  const std::string place = fmt::format("rank {} (pipe {} of {})", world.rank(), world.rank(), world.size());
  const auto refused = [&](const std::vector<PipelineLayer>& layers, const PipelineOptions& options,
                           std::initializer_list<std::string> words, Where where = Where::current()) {
    const auto make = [&] { Pipeline(layers, mesh["pipe"], options); };
    require_error(make, "UsageError", words, where);
    const bool names_others = error_of(make).find(", but pipe ") != std::string::npos || options.cut == Cut::time;
    if (!names_others) require_error(make, "UsageError", {place}, where);
  };
  refused(mlp(), {.micro_batches = 0}, {"micro_batches = 0", "at least 1"});
  refused(mlp(), {.chunks = 2}, {"chunks = 2", "interleaved"});
  refused(mlp(), {.schedule = Schedule::interleaved, .chunks = 14}, {"13 layers", "stages"});
  refused({}, {}, {"0 layers"});
  refused({linear("a.b", 6, 6)}, {.chunks = 1}, {world.size() == 1 ? "without dots" : "fewer than"});
  std::vector<PipelineLayer> twice = mlp();
  twice.push_back(linear("in", 3, 3));
  refused(twice, {}, {"two layers are named 'in'"});
  refused(mlp(), {.begins = std::vector<std::string>(static_cast<size_t>(world.size()) + 1, "in")}, {"begins"});
  refused(mlp(), {.cut = Cut::time}, {".sample"});
  std::vector<PipelineLayer> lost = mlp();
  lost.push_back(linear("more", 3, 3, {.tied = {{"weight", "nothing.weight"}}}));
  refused(lost, {}, {"more.weight", "nothing.weight"});
  lost.back() = linear("more", 3, 3, {.tied = {{"weight", "in.weight"}}});
  refused(lost, {}, {"more.weight", "in.weight", "[3, 3]", "[10, 6]"});
  lost.back() = linear("more", 3, 3, {.tied = {{"wait", "in.weight"}}});
  refused(lost, {}, {"no parameter 'more.wait'"});
  if (world.size() == 1) return;
  refused(mlp(), {.micro_batches = 2 + world.rank()}, {"micro_batches = 2", "micro_batches = 3", "pipe 1"});
  std::vector<PipelineLayer> other = mlp();
  if (world.rank() == 1) other.pop_back();
  refused(other, {}, {"13 layers", "12 layers", "rank 1"});
}

void pipeline_undeclared_sharing(const World& world) {
  const auto shared = in_double(torch::nn::Linear(6, 6));
  const auto used_by = [&](const std::string& name, const LayerOptions& options = {}) {
    return PipelineLayer(
        name, [shared] { return shared; }, options);
  };
  std::vector<PipelineLayer> layers{used_by("first")};
  for (int i = 0; i < 6; ++i) layers.push_back(linear(fmt::format("fc{}", i), 6, 6));
  layers.push_back(linear("out", 6, 3));
  // Made before, but used once.
  CpuPipeline fine(layers, world, {.loss = square_error});
  layers.insert(layers.end() - 1, used_by("second"));
  require_error([&] { Pipeline(layers, world, {.loss = square_error}); }, "UsageError",
                {"first.weight and second.weight are one tensor", ".tied = {{\"weight\", \"first.weight\"}}"});
}

void pipeline_bad_batches(const World& world) {
  CpuPipeline pipe(mlp(), world, {.micro_batches = 8, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto [x, y] = plain_data(1);
  const auto refused = [&](const std::function<void()>& call, std::initializer_list<std::string> words,
                           Where where = Where::current()) { require_error(call, "UsageError", words, where); };
  refused([&] { pipe.train_batch(x.slice(0, 0, 7), y.slice(0, 0, 7), sgd); }, {"7 rows", "8 micro-batches"});
  refused([&] { pipe.train_batch(x, y.slice(0, 0, 20), sgd); }, {"24 rows", "20"});
  refused([&] { pipe.train_batch({}, y, sgd); }, {"the first", "inputs"});
  refused([&] { pipe.eval_batch(x, {}); }, {"the last", "targets"});
  torch::nn::Linear other(2, 2);
  torch::optim::SGD wrong(world.rank() == 0 ? other->parameters() : pipe.parameters(), 0.1);
  refused([&] { pipe.train_batch(x, y, wrong); }, {"not this pipeline's", "pipe 0 (rank 0)", "pipe.parameters()"});
  const Tensors all = pipe.parameters();
  torch::optim::SGD partial(world.rank() == world.size() - 1 ? Tensors(all.begin(), all.end() - 1) : all, 0.1);
  refused([&] { pipe.train_batch(x, y, partial); }, {"lacks 1", fmt::format("pipe {}", world.size() - 1)});
  if (world.size() > 1) {
    refused([&] { world.rank() == 0 ? pipe.eval_batch(x, y) : pipe.train_batch(x, y, sgd); }, {"another function"});
    refused([&] { pipe.train_batch(x, y, sgd, {.clip_norm = world.rank() == 0 ? 1.0 : 0.5}); },
            {"clip_norm is 1 on pipe 0", "0.5 on pipe 1"});
    optim::GradScaler scaler({.init_scale = world.rank() == 0 ? 1024.0 : 512.0});
    refused([&] { pipe.train_batch(x, y, sgd, {.scaler = &scaler}); }, {"the scale of the loss is 1024", "512"});
  }
  {
    const NoSync local = pipe.no_sync();
    refused([&] { pipe.train_batch(x, y, sgd); }, {"no_sync()", "accumulate()"});
  }
  CpuPipeline silent(mlp(), world, {.micro_batches = 2});
  refused([&] { silent.eval_batch(x, y); }, {"no loss", ".loss"});
  pipe.train_batch(x, y, sgd);  // nothing of this has harmed it
}

// A rank that has a GPU computes there, unless it is told otherwise.
void pipeline_device(const World& world) {
  Pipeline pipe(mlp(), world, {.loss = square_error});
  for (const torch::Tensor& parameter : pipe.parameters())
    require(parameter.device() == world.device() || parameter.numel() == 0,
            "a parameter on " + parameter.device().str());
  const auto [x, y] = plain_data(1);
  const torch::Tensor mine = world.rank() == 0 ? x.to(torch::kMeta) : x;
  require_error([&] { pipe.eval_batch(mine, y); }, "UsageError",
                {fmt::format("pipe 0 (rank 0) computes on {}, but its inputs are on meta", world.device().str())});
}

// As a Loader over the world gives them: another batch for each rank.
void pipeline_other_batches(const World& world) {
  if (world.size() == 1) return;
  CpuPipeline pipe(mlp(), world, {.micro_batches = 2, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto batch = plain_data(1), other = plain_data(2 + world.rank());
  const torch::Tensor &x = batch.first, &y = batch.second;
  const auto refused = [&](const std::function<void()>& call, const std::string& what) {
    require_error(call, "UsageError",
                  {"pipe 0 (rank 0) and pipe 1 (rank 1) have different " + what, "Loader(dataset, mesh[\"data\"])"});
  };
  refused([&] { pipe.train_batch(other.first, y, sgd); }, "inputs");    // the first
  refused([&] { pipe.train_batch(x, other.second, sgd); }, "targets");  // the second
  refused([&] { pipe.eval_batch(other.first, y); }, "inputs");
  refused([&] { pipe.predict(other.first); }, "inputs");
  const Tensors both{x, torch::ones({kPipelineRows}, torch::kLong)}, swapped{both[1], both[0]};
  refused([&] { pipe.eval_batch(world.rank() == 1 ? swapped : both, y); }, "inputs");
  pipe.train_batch(x, y, sgd);
  // The fourth: the values count, not how they lie in memory, and only where a rank has them.
  const torch::Tensor lies_otherwise = x.t().contiguous().t();
  const BatchTensors mine = world.rank() == world.size() - 1 ? BatchTensors(lies_otherwise) : BatchTensors(x);
  pipe.train_batch(mine, y, sgd);
  for (int i = 5; i < 8; ++i) pipe.train_batch(x, y, sgd);
  refused([&] { pipe.train_batch(other.first, y, sgd); }, "inputs");  // the eighth
}

// Each layer and micro-batch drops out other numbers: those that one process drops, the same along the model axis.
struct NotingDropout : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (!is_training()) return x;
    masks.push_back(torch::dropout(torch::ones_like(x), 0.5, /*train=*/true));
    return x * masks.back();
  }
  Tensors masks;
};

std::map<std::string, Tensors> masks_of(const Pipeline& pipe) {
  std::map<std::string, Tensors> all;
  for (const auto& item : pipe->named_children())
    if (const auto dropout = std::dynamic_pointer_cast<NotingDropout>(item.value())) all[item.key()] = dropout->masks;
  return all;
}

// Four masks of each layer: of two batches, and in each of two micro-batches, or of one that is computed twice. Dropout
// stands behind layers with weights: without a gradient to pass on nothing would be computed again.
std::map<std::string, Tensors> masks_of_training(const Group& pipes, const Mesh& mesh, bool recompute) {
  std::vector<PipelineLayer> layers;
  for (int i = 0; i < 4; ++i) {
    const LayerOptions options{.recompute = recompute};
    layers.push_back(linear(fmt::format("fc{}", i), 6, 6));
    layers.push_back({fmt::format("drop{}", i), [] { return std::make_shared<NotingDropout>(); }, options});
  }
  CpuPipeline pipe(layers, pipes, {.micro_batches = recompute ? 1 : 2, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const torch::Tensor x = doubles_like({8, 6}, 1), y = doubles_like({8, 6}, 2);
  seed_along(mesh["data"], 5);
  for (int i = 0; i < 2; ++i) {
    pipe.train_batch(x, y, sgd);
    pipe.eval_batch(x, y);
  }
  if (mesh.size("data") == 1) require_equal_everywhere(torch::rand(3), "random numbers afterwards");
  return masks_of(pipe);
}

void require_different(const Tensors& masks, const std::string& what) {
  for (size_t i = 0; i < masks.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      require(!masks[i].equal(masks[j]), fmt::format("{}: masks {} and {} are one", what, j, i));
}

void require_masks_of_one_process(const World& world, const std::vector<MeshAxis>& axes) {
  const Mesh mesh(world, axes);
  for (const bool recompute : {false, true}) {
    const std::string what = fmt::format("{}, recompute {}", mesh.describe(), recompute);
    const auto expected = masks_of_training(world.new_group({world.rank()}), mesh, recompute);
    for (const auto& [name, masks] : masks_of_training(mesh["pipe"], mesh, recompute)) {
      require(masks.size() == 4 && expected.at(name).size() == 4, fmt::format("{}: {} masks", what, masks.size()));
      for (size_t i = 0; i < masks.size(); ++i)
        require(masks[i].equal(expected.at(name)[i]), fmt::format("{}: mask {} of {}", what, i, name));
      for (size_t i = 0; recompute && i < masks.size(); i += 2)
        require(masks[i].equal(masks[i + 1]), fmt::format("{}: {} draws another mask in recompute", what, name));
      Tensors along_data;
      all_gather(along_data, masks[0], mesh["data"]);
      require_different(along_data, what + " along data");
    }
    Tensors all;
    for (const auto& [name, masks] : expected)
      for (size_t i = 0; i < masks.size(); i += recompute ? 2 : 1) all.push_back(masks[i]);
    require_different(all, what);
  }
}

void pipeline_dropout(const World& world) {
  if (world.size() > 4) return;
  require_masks_of_one_process(world, {{"pipe", -1}, {"data", 1}, {"model", 1}});
  if (world.size() != 4) return;
  require_masks_of_one_process(world, {{"pipe", 2}, {"data", 1}, {"model", 2}});
  require_masks_of_one_process(world, {{"pipe", 2}, {"data", 2}, {"model", 1}});
}

// What is tied must stay so.
void pipeline_parted_ties(const World& world) {
  if (world.size() > 10) return;
  CpuPipeline pipe(tied_words(), world, {.micro_batches = 2, .loss = word_loss});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto [x, y] = word_data(1);
  pipe.train_batch(x, y, sgd);
  if (world.size() == 1) {
    pipe->to(torch::kFloat);
    require_error([&] { pipe.train_batch(x, y, sgd); }, "UsageError", {"tied parameters of pipe 0", "parted"});
    return;
  }
  const torch::NoGradGuard no_grad;
  for (auto& item : pipe->named_parameters())
    if (item.key() == "head.weight") item.value().add_(1);
  require_error([&] { pipe.train_batch(x, y, sgd); }, "UsageError", {"embed.weight", "differs between pipe"});
}

// A layer that throws: its rank says what, the others who.
struct FailingLayer : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (x.size(0) == 3) throw UsageError("a layer that does not like three rows");
    return x;
  }
};
void pipeline_failing_layer(const World& world) {
  std::vector<PipelineLayer> layers = mlp();
  layers.push_back({"failing", [] { return std::make_shared<FailingLayer>(); }});
  CpuPipeline pipe(layers, world, {.micro_batches = 2, .loss = square_error});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const torch::Tensor x = doubles_like({6, 6}, 1), y = doubles_like({6, 3}, 2);
  const bool guilty = world.rank() == world.size() - 1;
  require_error(
      [&] { pipe.train_batch(x, y, sgd); }, guilty ? "UsageError" : "PeerError",
      {fmt::format("pipe stage {} of {}", world.rank(), world.size()), "a layer that does not like three rows"});
}

// The first rank fails in its last backward, when the last rank may be past its own and wait for the tied gradients.
struct FailsBackward : torch::nn::Module {
  explicit FailsBackward(int batches) : left(batches) {}
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x * 1;
    y.register_hook([this](const torch::Tensor&) {
      if (--left == 0) throw UsageError("a gradient that is not liked");
    });
    return y;
  }
  int left;
};
void pipeline_failing_backward(const World& world) {
  if (world.size() < 2) return;
  constexpr int kBatches = 4;
  std::vector<PipelineLayer> layers = tied_ends().layers;
  layers.insert(layers.begin() + 1, {"failing", [=] { return std::make_shared<FailsBackward>(kBatches); }});
  CpuPipeline pipe(layers, world, {.micro_batches = kBatches, .loss = word_loss});
  torch::optim::SGD sgd(pipe.parameters(), 0.1);
  const auto [x, y] = word_data(1);
  const bool guilty = pipe.describe().find("layers embed") != std::string::npos;
  // Between hosts a connection may break before the reason has come.
  const bool reason = guilty || world.backend() == "shm";
  require_error([&] { pipe.train_batch(x, y, sgd); }, guilty ? "UsageError" : "PeerError",
                {reason ? "a gradient that is not liked" : "rank"});
}

// --- stages that are frozen when the pipeline is made

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

void pipeline_other_learning_rates(const World& world) {
  if (world.size() == 1) return;
  for (const PipelineLayout& layout : sharded({PipelineLayout{1, {}}})) {
    PipelineTraining training(world, mlp_net(), layout);
    torch::optim::SGD sgd(training.pipe.parameters(), world.rank() == 1 ? 0.2 : 0.1);
    const auto [x, y] = training.batch(0);
    const auto step = [&, &input = x, &target = y] { training.pipe.train_batch(input, target, sgd); };
    require_error(step, "UsageError", {"Pipeline", "lr = 0.1", "lr = 0.2"});
  }
}

// In a mesh with a data axis that it was not given.
void pipeline_without_data(const World& world) {
  if (world.size() == 1) return;
  static std::string warnings;
  warnings.clear();
  const Mesh mesh(world, {{"pipe", 1}, {"data", -1}});
  const LogSink before = set_log_sink([](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) warnings += text;
  });
  { const CpuPipeline forgotten(mlp(), mesh["pipe"], {.loss = square_error}); }
  const bool warns = warnings.find("run beside each other") != std::string::npos;
  warnings.clear();
  { const CpuPipeline given(mlp(), mesh["pipe"], {.loss = square_error, .data = mesh["data"]}); }
  { const CpuPipeline whole(mlp(), world, {.loss = square_error}); }
  set_log_sink(before);
  require(warns == (world.rank() == 0) && warnings.empty(), "a warning on rank 0 only: " + warnings);
}

void pipeline_no_sync_over_the_step(const World& world) {
  if (world.size() == 1) return;
  PipelineTraining training(world, mlp_net(), {1, {.micro_batches = 2}});
  const NoSync local = training.pipe.no_sync();
  const auto step = [&](int i) {
    const auto [x, y] = training.batch(i);
    training.pipe.accumulate(x, y);
    training.adam.step();
    training.adam.zero_grad();
  };
  step(0);
  require_error([&] { step(1); }, "UsageError", {"parameter in.weight", "no_sync()", "pipe stage 0"});
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
          {"pipeline_of_split_layers", pipeline_of_split_layers},
          {"pipeline_checkpoint", pipeline_checkpoint},
          {"pipeline_checkpoint_of_groups", pipeline_checkpoint_of_groups},
          {"pipeline_checkpoint_of_one_process", pipeline_checkpoint_of_one_process},
          {"pipeline_bad_options", pipeline_bad_options},
          {"pipeline_undeclared_sharing", pipeline_undeclared_sharing},
          {"pipeline_bad_batches", pipeline_bad_batches},
          {"pipeline_device", pipeline_device},
          {"pipeline_other_batches", pipeline_other_batches},
          {"pipeline_dropout", pipeline_dropout},
          {"pipeline_parted_ties", pipeline_parted_ties},
          {"pipeline_failing_backward", pipeline_failing_backward},
          {"pipeline_failing_layer", pipeline_failing_layer},
          {"pipeline_unfrozen_later", pipeline_unfrozen_later},
          {"pipeline_frozen_weights_differ", pipeline_frozen_weights_differ},
          {"pipeline_other_learning_rates", pipeline_other_learning_rates},
          {"pipeline_without_data", pipeline_without_data},
          {"pipeline_no_sync_over_the_step", pipeline_no_sync_over_the_step}};
}

}  // namespace trireme::test
