// Layers that are split over the ranks of one axis of a mesh, and averaged along the other.
//
//   $ trireme launch -n 4 build/bin/example_tensor_parallel
//   2 x 2 ranks (data x model): each holds 1.1 MB of 2.1 MB of weights
//   loss 1.05 before, 0.01 after 50 steps
#include <trireme/trireme.h>

#include "terminal.h"

using namespace trireme;

namespace {

// Each rank computes its half of the hidden layer; the sum of the halves is the output.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Group& group)
      : up(register_module(
            "up", nn::ColumnParallelLinear(64, 4096, group, nn::ColumnParallelOptions{.gather_output = false}))),
        down(register_module(
            "down", nn::RowParallelLinear(4096, 64, group, nn::RowParallelOptions{.input_is_parallel = true}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::gelu(up(x))); }
  nn::ColumnParallelLinear up;
  nn::RowParallelLinear down;
};
TORCH_MODULE(Net);

double megabytes(const std::vector<torch::Tensor>& tensors) {
  size_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return static_cast<double>(bytes) / 1e6;
}

}  // namespace

int main(int argc, char** argv) try {
  options(argc, argv);
  World world = init_parallel_env();
  Mesh mesh(world, {{"data", -1}, {"model", world.size() % 2 == 0 ? 2 : 1}});
  torch::manual_seed(1);  // the same weights, split in any way
  Net net(mesh["model"]);
  net->to(world.device());
  DataParallel model(net, mesh["data"]);
  torch::optim::Adam adam(model.parameters(), 1e-3);

  // Ranks of one line of the model axis have the same data.
  const torch::Tensor all = torch::randn({128, 64}).to(world.device());
  const torch::Tensor x = all.chunk(mesh.size("data"))[static_cast<size_t>(mesh.rank("data"))];
  const torch::Tensor y = x.roll(1, 1);
  double first = 0, last = 0;
  for (int step = 0; step < 50; ++step) {
    torch::Tensor loss = torch::mse_loss(model(x), y);
    loss.backward();
    adam.step();
    adam.zero_grad();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  if (world.rank() == 0)
    std::cout << fmt::format("{} x {} ranks (data x model): each holds {:.1f} MB of {:.1f} MB of weights\n",
                             mesh.size("data"), mesh.size("model"), megabytes(net->parameters()),
                             megabytes(Net(world.new_group({0}))->parameters()))
              << fmt::format("loss {:.2f} before, {:.2f} after 50 steps\n", first, last) << std::flush;
  return last < first ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
