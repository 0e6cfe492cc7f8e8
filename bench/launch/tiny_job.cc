// The smallest real job: two linear layers, ten steps, gradients averaged over the ranks. tiny_torch.py and
// tiny_paddle.py beside it are the same for the peers; launch_bench.py measures the three from command to exit.
#include <trireme/trireme.h>

#include <iostream>

using namespace trireme;

int main() try {
  World world = init_parallel_env();
  torch::manual_seed(world.rank());
  DataParallel model(torch::nn::Sequential(torch::nn::Linear(10, 10), torch::nn::Linear(10, 1)), world);
  torch::optim::SGD sgd(model->parameters(), 0.01);
  for (int step = 0; step < 10; ++step) {
    torch::mse_loss(model->forward(torch::randn({10, 10})), torch::randn({10, 1})).backward();
    sgd.step();
    sgd.zero_grad();
  }
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
