// Layers that lie on the ranks one after the other; micro-batches go through them like work through a factory.
//
//   $ trireme launch -n 4 build/bin/example_pipeline
//   2 pipelines; stage 0 of 2: layers in to act3
//   loss 1.02 before, 0.01 after 30 steps
#include <trireme/trireme.h>

#include "terminal.h"

using namespace trireme;

int main(int argc, char** argv) try {
  options(argc, argv);
  World world = init_parallel_env();
  Mesh mesh(world, {{"pipe", world.size() % 2 == 0 ? 2 : 1}, {"data", -1}});
  std::vector<PipelineLayer> layers{{"in", [] { return torch::nn::Linear(64, 256); }}};  // made where it is needed
  for (int i = 1; i <= 5; ++i) {
    layers.push_back({fmt::format("act{}", i), [] { return torch::nn::ReLU(); }});
    layers.push_back({fmt::format("fc{}", i), [] { return torch::nn::Linear(256, 256); }, {.recompute = i == 1}});
  }
  layers.push_back({"out", [] { return torch::nn::Linear(256, 1); }});
  Pipeline pipe(layers, mesh["pipe"],
                {.micro_batches = 8,
                 .schedule = Schedule::one_f_one_b,
                 .loss = [](const torch::Tensor& output, const torch::Tensor& y) { return torch::mse_loss(output, y); },
                 .data = mesh["data"]});
  torch::optim::Adam adam(pipe.parameters(), 1e-3);  // of this rank's layers

  torch::manual_seed(1);
  const torch::Tensor all = torch::randn({128, 64}).to(world.device());
  const torch::Tensor x = all.chunk(mesh.size("data"))[static_cast<size_t>(mesh.rank("data"))];
  const torch::Tensor y = x.sum(1, true).sign();
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    last = pipe.train_batch(x, y, adam, {.clip_norm = 1.0}).item<double>();  // the same number on every rank
    if (step == 0) first = last;
  }
  if (world.rank() == 0)
    std::cout << fmt::format("{} pipelines; {}\n", mesh.size("data"), pipe.describe())
              << fmt::format("loss {:.2f} before, {:.2f} after 30 steps\n", first, last) << std::flush;
  return last < first ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
