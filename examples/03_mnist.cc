// A perceptron on Fashion-MNIST. Because of several processes: init_parallel_env, DataParallel, `world` in the Loader.
//
//   $ trireme launch -n 2 build/bin/example_mnist --epochs 3
//   epoch 1/3: loss 0.9014, test accuracy 0.7520, 0.30 s
//   epoch 2/3: loss 0.5811, test accuracy 0.8060, 0.28 s
//   epoch 3/3: loss 0.5208, test accuracy 0.8200, 0.19 s
//
// --batch 32: of a process. --progress: a line that grows within an epoch, for a terminal.
#include <trireme/trireme.h>

#include "terminal.h"

using namespace trireme;

struct PerceptronImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return second(dropout(torch::relu(first(x.flatten(1))))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(784, 512));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.2));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(512, 10));
};
TORCH_MODULE(Perceptron);

int main(int argc, char** argv) try {
  auto given = options(argc, argv, {{"--epochs", 5}, {"--batch", 32}, {"--progress", 0}});
  World world = init_parallel_env();
  torch::manual_seed(world.rank());
  DataParallel model(Perceptron(), world);
  data::Loader train(data::FashionMnist(), {.batch_size = given["--batch"], .shuffle = true}, world);
  data::Loader test(data::FashionMnist({.split = data::Split::test}), {.batch_size = 500}, world);
  optim::Adam adam(model->parameters(), {.lr = 1e-3});
  for (int epoch = 1; epoch <= given["--epochs"]; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    torch::Tensor sums = torch::zeros({4});  // losses and steps, right ones and tested ones
    int64_t step = 0;
    model->train();
    for (auto& [x, y] : train) {
      const torch::Tensor loss = torch::cross_entropy_loss(model(x), y);
      loss.backward();
      adam.step();
      adam.zero_grad();
      sums += torch::tensor({loss.item<float>(), 1.F, 0.F, 0.F});
      if (given["--progress"] && world.rank() == 0) show_progress(epoch, ++step, train.size());
    }
    model->eval();
    const torch::NoGradGuard no_grad;
    for (auto& [x, y] : test)
      sums += torch::tensor({0.F, 0.F, model(x).argmax(1).eq(y).sum().item<float>(), static_cast<float>(y.size(0))});
    all_reduce(sums);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (world.rank() == 0)
      std::cout << fmt::format("epoch {}/{}: loss {:.4f}, test accuracy {:.4f}, {:.2f} s\n", epoch, given["--epochs"],
                               (sums[0] / sums[1]).item<float>(), (sums[2] / sums[3]).item<float>(), seconds.count())
                << std::flush;
  }
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
