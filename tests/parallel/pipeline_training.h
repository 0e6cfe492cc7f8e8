// Pipelines in training, beside one process that knows none: what the pipeline cases share.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases.h"
#include "trireme/io/optimizer_state.h"
#include "whole_model.h"

namespace trireme::test {

inline constexpr int64_t kPipelineRows = 24;

inline torch::Tensor doubles_like(at::IntArrayRef sizes, int seed) {
  return numbers(sizes, seed).to(torch::kDouble);
}

template <typename Module>
Module in_double(Module module) {
  module->to(torch::kDouble);
  return module;
}

inline torch::Tensor square_error(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

inline PipelineLayer linear_layer(const std::string& name, int64_t in, int64_t out, const LayerOptions& options = {}) {
  return {name, [=] { return in_double(torch::nn::Linear(in, out)); }, options};
}
inline PipelineLayer tanh_layer(const std::string& name) {
  return {name, [] { return torch::nn::Tanh(); }};
}

// Thirteen layers: enough for four ranks with three chunks each.
inline std::vector<PipelineLayer> mlp(const LayerOptions& options = {}) {
  std::vector<PipelineLayer> layers{linear_layer("in", 6, 10, options)};
  for (int i = 0; i < 5; ++i) {
    layers.push_back(tanh_layer(fmt::format("tanh{}", i)));
    layers.push_back(linear_layer(fmt::format("fc{}", i), 10, 10, options));
  }
  layers.push_back(tanh_layer("tanh5"));
  layers.push_back(linear_layer("out", 10, 3));
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

inline std::vector<PipelineLayer> convolutions() {
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
inline std::vector<PipelineLayer> tied_words() {
  std::vector<PipelineLayer> layers{{"embed", [] { return in_double(torch::nn::Embedding(11, 6)); }}};
  for (int i = 0; i < 6; ++i) layers.push_back(linear_layer(fmt::format("fc{}", i), 6, 6));
  layers.push_back(
      {"middle", [] { return in_double(std::make_shared<Unembed>()); }, {.tied = {{"weight", "embed.weight"}}}});
  layers.push_back(linear_layer("back", 11, 6));
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
inline std::pair<torch::Tensor, torch::Tensor> plain_data(int step) {
  return {doubles_like({kPipelineRows, 6}, step), doubles_like({kPipelineRows, 3}, 100 + step)};
}
inline std::pair<torch::Tensor, torch::Tensor> image_data(int step) {
  return {doubles_like({kPipelineRows, 2, 5, 5}, step), doubles_like({kPipelineRows, 3}, 100 + step)};
}
inline std::pair<torch::Tensor, torch::Tensor> word_data(int step) {
  torch::manual_seed(step);
  return {torch::randint(11, {kPipelineRows}, torch::kLong), torch::randint(11, {kPipelineRows}, torch::kLong)};
}
inline torch::Tensor word_loss(const torch::Tensor& scores, const torch::Tensor& words) {
  return torch::cross_entropy_loss(scores, words);
}

struct PipelineNet {
  std::vector<PipelineLayer> layers;
  PipelineData data;
  PipelineLoss loss;
};
inline PipelineNet mlp_net() {
  return {mlp(), plain_data, square_error};
}
inline PipelineNet image_net() {
  return {convolutions(), image_data, square_error};
}
inline PipelineNet word_net() {
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

inline std::vector<int> degrees_of(const World& world) {
  std::vector<int> degrees;
  for (const int degree : {1, 2, 4})
    if (world.size() % degree == 0) degrees.push_back(degree);
  return degrees;
}

inline std::vector<PipelineLayout> pipeline_layouts(const World& world, const std::vector<int>& micro_batches,
                                                    int most_chunks) {
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

inline PipelineLayout layout_of(int degree, int micro_batches, Schedule schedule, int chunks = 1,
                                std::optional<Shard> shard = {}) {
  PipelineLayout layout{degree, {.micro_batches = micro_batches, .schedule = schedule, .chunks = chunks}};
  if (shard) layout.options.shard = ShardedOptions{.shard = *shard, .unit_size = 1};
  return layout;
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

inline void require_same_losses(const std::vector<double>& got, const std::vector<double>& expected,
                                const std::string& what) {
  require(got.size() == expected.size(), what);
  for (size_t i = 0; i < got.size(); ++i)
    require(std::abs(got[i] - expected[i]) <= 1e-8 * std::abs(expected[i]),
            fmt::format("{}: loss {} of step {} is not {}", what, got[i], i, expected[i]));
}

// The layers of each stage split over the data axis, on the three levels.
inline std::vector<PipelineLayout> sharded(const std::vector<PipelineLayout>& all) {
  std::vector<PipelineLayout> result;
  for (PipelineLayout layout : all)
    for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::parameters}) {
      layout.options.shard = ShardedOptions{.shard = shard, .unit_size = 1};
      result.push_back(layout);
    }
  return result;
}

// Ends that are tied; each is on a rank of its own in a pipeline of at least two.
inline PipelineNet tied_ends() {
  std::vector<PipelineLayer> layers = tied_words();
  std::erase_if(layers, [](const PipelineLayer& layer) { return layer.name() == "middle" || layer.name() == "back"; });
  return {layers, word_data, word_loss};
}

// `named`: what runs where not all layouts are wanted.
inline void trains_like_one_process(const World& world, const PipelineNet& net, const std::vector<PipelineLayout>& all,
                                    const std::vector<PipelineLayout>& named) {
  if (kPipelineRows % world.size() != 0) return;
  OneProcess expected(net, world);
  expected.run(0, 10);
  const WholeModel whole = expected.whole();
  for (const PipelineLayout& layout : wanted(all, named)) {
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

}  // namespace trireme::test
