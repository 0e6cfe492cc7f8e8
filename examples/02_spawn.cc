// Data-parallel training from inside a program: spawn() in its four uses.
//
//   $ build/bin/example_spawn 3
//   rank 0: step 0 loss 0.562
//   rank 1: step 0 loss 2.322
//   rank 0: step 1 loss 0.520
//   rank 1: step 1 loss 2.145
//
// The number chooses the use: 1 a function alone, 2 with arguments, 3 on two processes, 4 on two GPUs by number.
#include <trireme/trireme.h>

#include <iostream>

using namespace trireme;

struct LinearNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return linear2(linear1(x)); }
  torch::nn::Linear linear1 = register_module("linear1", torch::nn::Linear(10, 10));
  torch::nn::Linear linear2 = register_module("linear2", torch::nn::Linear(10, 1));
};
TORCH_MODULE(LinearNet);

void train_linear(bool print_loss) {
  World world = init_parallel_env();
  torch::manual_seed(world.rank());
  DataParallel model(LinearNet(), world);
  torch::optim::Adam adam(model->parameters(), 1e-2);
  const torch::Tensor inputs = torch::randn({10, 10}).to(world.device());
  const torch::Tensor labels = torch::randn({10, 1}).to(world.device());
  for (int step = 0; step < 2; ++step) {
    torch::Tensor loss = torch::mse_loss(model(inputs), labels);
    loss.backward();
    adam.step();
    adam.zero_grad();
    if (print_loss) std::cout << fmt::format("step {} loss {:.3f}\n", step, loss.item<float>()) << std::flush;
  }
}

int main(int argc, char** argv) try {
  const std::string use = argc == 2 ? argv[1] : "";
  if (use == "1") spawn([] { train_linear(false); });  // one process for each visible GPU, else for each core
  if (use == "2") spawn(train_linear, std::tuple{true});
  if (use == "3") spawn(train_linear, std::tuple{true}, {.nprocs = 2});
  if (use == "4") spawn(train_linear, std::tuple{true}, {.nprocs = 2, .gpus = "4,5"});
  if (use.size() != 1 || use < "1" || use > "4") throw UsageError("usage: example_spawn 1|2|3|4");
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
