// Layers of libtorch that use their parameters in their own ways train as in one process when their model is split.
#include "cases.h"
#include "sharded_models.h"

namespace trireme::test {
namespace {

constexpr int64_t kWide = 128;

// An LSTM hands all its weights to one operator, and attention uses its weights as functions of torch::nn::functional.
struct Recurrent : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor read = std::get<0>(lstm(x));
    const torch::Tensor seen = attention(read.transpose(0, 1)).mean(0);
    return last(norm(seen));
  }
  torch::nn::LSTM lstm = register_module(
      "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(kWide / 2, kWide).num_layers(2).batch_first(true)));
  torch::nn::TransformerEncoderLayer attention = register_module(
      "attention", torch::nn::TransformerEncoderLayer(
                       torch::nn::TransformerEncoderLayerOptions(kWide, 4).dim_feedforward(2 * kWide).dropout(0)));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(kWide));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWide, 3));
};

std::shared_ptr<Recurrent> recurrent(const World& world) {
  auto net = seeded<Recurrent>();
  net->to(world.device(), torch::kDouble);
  return net;
}

// Every rank takes the whole batch: normalisation then sees what it sees in one process.
void sharded_layers(const World& world) {
  const auto alone = recurrent(world), net = recurrent(world);
  ShardedDataParallel model(net, world, {.shard = Shard::parameters, .unit_size = 1});
  require(model.sync()->unit_count() >= 3, fmt::format("{} units", model.sync()->unit_count()));
  torch::optim::Adam mine(model.parameters(), 1e-3), whole(alone->parameters(), 1e-3);
  for (int step = 0; step < 5; ++step) {
    const torch::Tensor x = input(world, {6, 5, kWide / 2}, step).to(torch::kDouble);
    const torch::Tensor y = input(world, {6, 3}, 50 + step).to(torch::kDouble);
    const torch::Tensor loss = torch::mse_loss(model(x), y), expected = torch::mse_loss(alone->forward(x), y);
    require_near(loss, expected, 1e-9, fmt::format("loss of step {}", step));
    loss.backward();
    expected.backward();
    mine.step();
    mine.zero_grad();
    whole.step();
    whole.zero_grad();
  }
  const auto gathered = model.gathered();
  require_near(flat(*net), flat(*alone), 1e-8, "parameters");
  const auto buffers = alone->named_buffers();
  for (const auto& item : net->named_buffers())
    require_near(item.value().to(torch::kDouble), buffers[item.key()].to(torch::kDouble), 1e-8, item.key());
}

}  // namespace

std::vector<Case> sharded_layers_cases() {
  return {{"sharded_layers", sharded_layers}};
}

}  // namespace trireme::test
