// The multilayer perceptron on Fashion-MNIST: 784-512-ReLU-Dropout-10, Adam, batches of 32 a process.
//
//   $ trireme launch -n 2 build/bin/example_mnist --epochs 5
//   epoch 1/5: loss 0.9061, accuracy 0.6888, test accuracy 0.7520, 2.9 s
//   epoch 2/5: loss 0.5826, accuracy 0.7906, test accuracy 0.8060, 2.2 s
//   epoch 3/5: loss 0.5212, accuracy 0.8168, test accuracy 0.8200, 2.3 s
//   epoch 4/5: loss 0.4618, accuracy 0.8438, test accuracy 0.8320, 4.1 s
//   epoch 5/5: loss 0.4329, accuracy 0.8524, test accuracy 0.8190, 2.7 s
//
// --batch N: another batch size a process. --progress: a line that grows within an epoch, for a terminal.
//
// Lines that are there only because several processes train: init_parallel_env, DataParallel, and `world` in the
// Loader.
#include <trireme/trireme.h>

#include <iostream>

#include "terminal.h"

using namespace trireme;

struct PerceptronImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return second(dropout(torch::relu(first(x.flatten(1))))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(784, 512));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.2));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(512, 10));
};
TORCH_MODULE(Perceptron);

// Sums over all ranks: how many were right, of how many, and their losses.
struct Score {
  torch::Tensor sums = torch::zeros({3}, torch::kDouble);
  void add(const torch::Tensor& scores, const torch::Tensor& labels, double loss) {
    const auto count = static_cast<double>(labels.size(0));
    sums += torch::tensor({scores.argmax(1).eq(labels).sum().item<double>(), count, loss * count}, torch::kDouble);
  }
  void join() { all_reduce(sums); }
  double accuracy() const { return (sums[0] / sums[1]).item<double>(); }
  double loss() const { return (sums[2] / sums[1]).item<double>(); }
};

int main(int argc, char** argv) try {
  const int epochs = option(argc, argv, "--epochs", 5);
  const int batch_size = option(argc, argv, "--batch", 32);
  World world = init_parallel_env();
  const bool progress = world.rank() == 0 && option(argc, argv, "--progress", 0) != 0;
  torch::manual_seed(world.rank());
  DataParallel model(Perceptron(), world);
  data::Loader train(data::FashionMnist(), {.batch_size = batch_size, .shuffle = true}, world);
  data::Loader test(data::FashionMnist({.split = data::Split::test}), {.batch_size = 500}, world);
  torch::optim::Adam adam(model->parameters(), 1e-3);

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    Score trained, tested;
    int64_t step = 0;
    model->train();
    for (auto& [x, y] : train) {
      const torch::Tensor scores = model(x);
      torch::Tensor loss = torch::cross_entropy_loss(scores, y);
      loss.backward();
      adam.step();
      adam.zero_grad();
      trained.add(scores, y, loss.item<double>());
      if (progress) show_progress(epoch, ++step, train.size());
    }
    model->eval();
    const torch::NoGradGuard no_grad;
    for (auto& [x, y] : test) tested.add(model(x), y, 0);
    trained.join();
    tested.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (world.rank() == 0)
      std::cout << fmt::format("epoch {}/{}: loss {:.4f}, accuracy {:.4f}, test accuracy {:.4f}, {:.1f} s\n", epoch,
                               epochs, trained.loss(), trained.accuracy(), tested.accuracy(), seconds.count())
                << std::flush;
  }
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
