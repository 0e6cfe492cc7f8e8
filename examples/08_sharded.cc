// A model that is split over the ranks: each keeps a part of the parameters, gradients and optimizer states.
//
//   $ trireme launch -n 4 build/bin/example_sharded
//   12.6 MB of parameters; each of 4 ranks keeps 3.2 MB of them
//   loss 1.02 before, 0.00 after 30 steps
#include <trireme/trireme.h>

#include "terminal.h"

using namespace trireme;

namespace {

double megabytes(const std::vector<torch::Tensor>& tensors) {
  size_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return static_cast<double>(bytes) / 1e6;
}

}  // namespace

int main(int argc, char** argv) try {
  options(argc, argv);
  World world = init_parallel_env();
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 1024), torch::nn::ReLU(), torch::nn::Linear(1024, 1024),
                            torch::nn::ReLU(), torch::nn::Linear(1024, 1024), torch::nn::ReLU(),
                            torch::nn::Linear(1024, 1000), torch::nn::ReLU(), torch::nn::Linear(1000, 1));
  const double whole = megabytes(net->parameters());
  ShardedDataParallel model(net, world, {.shard = Shard::parameters, .unit_size = 1});
  torch::optim::Adam adam(model.parameters(), 1e-3);  // this rank's pieces

  const torch::Tensor x =
      torch::randn({128, 64}).chunk(world.size())[static_cast<size_t>(world.rank())].to(world.device());
  const torch::Tensor y = x.sum(1, true).sign();
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    torch::Tensor loss = torch::mse_loss(model(x), y);
    loss.backward();
    optim::clip_grad_norm(model.parameters(), 1.0);  // the norm over all ranks
    adam.step();
    adam.zero_grad();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  if (world.rank() == 0)
    std::cout << fmt::format("{:.1f} MB of parameters; each of {} ranks keeps {:.1f} MB of them\n", whole, world.size(),
                             megabytes(model.parameters()))
              << fmt::format("loss {:.2f} before, {:.2f} after 30 steps\n", first, last) << std::flush;
  return last < first ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
