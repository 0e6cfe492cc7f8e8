// model_dump NETWORK CLASSES STEPS FOLDER: what one of our networks computes from the weights and the batch that lie in
// FOLDER, for comparison with its original. Reads weights.safetensors and batch.safetensors (images, labels); writes
// result.safetensors: `scores` in evaluation, `gradient.NAME` of the mean cross-entropy in training, and `losses` of
// STEPS steps of SGD on that batch. Without dropout, whose random numbers no two frameworks share. With TRIREME_FUSED=1
// training is channels last, where the fused passes run; otherwise in the usual memory order.
#include <fmt/core.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/io/module_state.h"
#include "trireme/io/safetensors.h"
#include "trireme/models/models.h"
#include "trireme/nn/channels_last.h"

namespace {

using trireme::io::TensorMap;
using trireme::models::Classifier;

constexpr double kRate = 0.05, kMomentum = 0.9, kDecay = 1e-4;  // as in models_peers.py

struct Batch {
  torch::Tensor images, labels;
};

torch::Tensor loss_of(Classifier& net, const Batch& batch) {
  return torch::cross_entropy_loss(net.forward(batch.images), batch.labels);
}

torch::Tensor scores(Classifier& net, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  net.eval();
  torch::Tensor result = net.forward(batch.images);
  net.train();
  return result;
}

void add_gradients(Classifier& net, const Batch& batch, TensorMap& result) {
  loss_of(net, batch).backward();
  for (const auto& item : net.named_parameters())
    if (item.value().grad().defined()) result.insert("gradient." + item.key(), item.value().grad().clone());
}

torch::Tensor losses(Classifier& net, const Batch& batch, int steps) {
  torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(kRate).momentum(kMomentum).weight_decay(kDecay));
  std::vector<double> all;
  for (int i = 0; i < steps; ++i) {
    sgd.zero_grad();
    const torch::Tensor loss = loss_of(net, batch);
    loss.backward();
    sgd.step();
    all.push_back(loss.item<double>());
  }
  return torch::tensor(all, torch::kDouble);
}

trireme::models::ClassifierPtr without_dropout(const std::string& name, int64_t classes) {
  try {
    return trireme::models::create(name, {.class_num = classes, .dropout = 0.0});
  } catch (const trireme::UsageError&) {  // it has none
    return trireme::models::create(name, {.class_num = classes});
  }
}

void lay_out(Classifier& net, Batch& batch) {
  if (trireme::env::get("TRIREME_FUSED") != "1") return;
  trireme::nn::to_channels_last(net);
  batch.images = batch.images.contiguous(torch::MemoryFormat::ChannelsLast);
}

void dump(const std::string& name, int64_t classes, int steps, const std::filesystem::path& folder) {
  const auto net = without_dropout(name, classes);
  const TensorMap weights = trireme::io::load_safetensors(folder / "weights.safetensors");
  trireme::io::load_into(*net, weights);
  const TensorMap input = trireme::io::load_safetensors(folder / "batch.safetensors");
  Batch batch{input["images"], input["labels"]};
  TensorMap result;
  result.insert("scores", scores(*net, batch));
  lay_out(*net, batch);
  add_gradients(*net, batch, result);
  trireme::io::load_into(*net, weights);  // the statistics have moved
  result.insert("losses", losses(*net, batch, steps));
  trireme::io::save_safetensors(folder / "result.safetensors", result);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: model_dump NETWORK CLASSES STEPS FOLDER\n");
    return 2;
  }
  try {
    dump(argv[1], std::stoll(argv[2]), std::stoi(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "model_dump: {}\n", error.what());
    return 1;
  }
}
