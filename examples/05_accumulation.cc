// Gradient accumulation: four small batches count as one, and only the last of them is averaged over the ranks.
//
//   $ trireme launch -n 2 build/bin/example_accumulation
//   accumulated over 4 x 2 batches: the same as one batch of 64, difference below 1e-6
#include <trireme/trireme.h>

#include <optional>

#include "terminal.h"

using namespace trireme;

int main(int argc, char** argv) try {
  options(argc, argv);
  World world = init_parallel_env();
  constexpr int kParts = 4;
  torch::manual_seed(1);  // the same batch and the same model everywhere
  const torch::Tensor batch = torch::randn({64, 10});
  torch::nn::Linear alone(10, 1);
  DataParallel model(std::dynamic_pointer_cast<torch::nn::LinearImpl>(alone->clone()), world);

  const torch::Tensor share = batch.chunk(world.size())[static_cast<size_t>(world.rank())].to(world.device());
  const std::vector<torch::Tensor> parts = share.chunk(kParts);
  for (int part = 0; part < kParts; ++part) {
    std::optional<NoSync> local;
    if (part + 1 < kParts) local.emplace(model.no_sync());
    (model(parts[static_cast<size_t>(part)]).square().mean() / kParts).backward();
  }

  alone(batch).square().mean().backward();
  const double difference = (model->weight.grad().cpu() - alone->weight.grad()).abs().max().item<double>();
  if (world.rank() == 0)
    std::cout << fmt::format("accumulated over {} x {} batches: the same as one batch of 64, difference {}\n", kParts,
                             world.size(), difference < 1e-6 ? "below 1e-6" : fmt::format("{}", difference))
              << std::flush;
  return difference < 1e-6 ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
