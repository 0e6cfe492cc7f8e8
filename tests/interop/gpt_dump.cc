// gpt_dump FOLDER SEQUENCE_PARALLEL: trains our GPT, split over all ranks of the job, from the weights and on the tokens
// that lie in FOLDER, as gpt_peers.py does with PyTorch's tensor parallelism. Rank 0 writes ours.safetensors: the whole
// parameters after the last step, and `losses`.
#include <trireme/trireme.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "trireme/optim/split_tensors.h"

using namespace trireme;

namespace {

constexpr double kRate = 0.1, kMomentum = 0.9;  // as in gpt_peers.py

torch::Tensor whole_of(const torch::Tensor& parameter) {
  const auto how = optim::split_of(parameter);
  return (how ? how->whole(parameter) : parameter).detach().clone();
}

void set_weights(models::Gpt& net, const io::TensorMap& weights) {
  const torch::NoGradGuard no_grad;
  for (auto& item : net->named_parameters()) {
    const auto how = optim::split_of(item.value());
    const torch::Tensor& whole = weights[item.key()];
    item.value().copy_(how ? how->cut(item.value(), whole) : whole);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw UsageError("usage: gpt_dump FOLDER SEQUENCE_PARALLEL");
  const std::filesystem::path folder = argv[1];
  const World world = init_parallel_env();
  const io::TensorMap text = io::load_safetensors(folder / "text.safetensors");
  models::Gpt net = models::gpt({.vocabulary = 32,
                                 .context = 16,
                                 .width = 32,
                                 .heads = 4,
                                 .layers = 2,
                                 .dropout = 0,
                                 .sequence_parallel = std::string(argv[2]) == "1"},
                                world);
  net->to(torch::kDouble);
  set_weights(net, io::load_safetensors(folder / "weights.safetensors"));
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(kRate).momentum(kMomentum));
  std::vector<double> losses;
  for (int64_t step = 0; step < text["tokens"].size(0); ++step) {
    const torch::Tensor tokens = text["tokens"][step];
    sgd.zero_grad();
    const torch::Tensor loss = net->loss(tokens.slice(1, 0, 16), tokens.slice(1, 1));
    loss.backward();
    sgd.step();
    losses.push_back(loss.item<double>());
  }
  io::TensorMap result;
  for (const auto& item : net->named_parameters()) result.insert(item.key(), whole_of(item.value()));
  result.insert("losses", torch::tensor(losses, torch::kDouble));
  if (world.rank() == 0) io::save_safetensors(folder / "ours.safetensors", result);
  return 0;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
