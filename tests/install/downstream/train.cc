// Data-parallel training by an installed copy: as strangers write it, but for the first include.
#include <trireme/trireme.h>

#include "torch_headers.h"

using namespace trireme;

int main() {
  World world = init_parallel_env();
  torch::manual_seed(world.rank());
  DataParallel model(torch::nn::Linear(4, 1), world);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  data::Loader loader(data::FashionMnist({.split = data::Split::test}), {.batch_size = 100}, world);  // installed too
  for (auto& [x, y] : loader) {
    torch::mse_loss(model(x.flatten(1).narrow(1, 300, 4)), y.unsqueeze(1).to(torch::kFloat)).backward();
    sgd.step();
    sgd.zero_grad();
  }
  Tensors weights;
  all_gather(weights, model->weight.detach());
  const bool equal = weights.front().equal(weights.back());
  fmt::print("rank {} of {}, {} steps: weights are {}\n", world.rank(), world.size(), loader.size(),
             equal ? "equal" : "different");
  return equal ? 0 : 1;
}
