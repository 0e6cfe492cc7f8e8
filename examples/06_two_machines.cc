// The same program on two machines. On each of them, with the address of the first:
//
//   $ trireme launch --ips 10.77.0.1,10.77.0.2 -n 2 build/bin/example_two_machines
//   4 ranks by hierarchical: machine 0 has 0 1; machine 1 has 2 3;
//   trained 20 steps, the ranks' weights are equal
//
// Inside a machine the ranks share memory, between machines they use the network; the program does not know.
#include <trireme/trireme.h>

#include <map>

#include "terminal.h"

using namespace trireme;

int main(int argc, char** argv) try {
  options(argc, argv);
  World world = init_parallel_env();
  std::map<std::string, std::string> hosts;
  const std::vector<std::string> nodes = all_gather_object(std::to_string(world.env().node_rank));
  for (size_t rank = 0; rank < nodes.size(); ++rank) hosts[nodes[rank]] += fmt::format(" {}", rank);
  if (world.rank() == 0) {
    std::cout << fmt::format("{} ranks by {}:", world.size(), get_backend());
    for (const auto& [node, ranks] : hosts) std::cout << fmt::format(" machine {} has{};", node, ranks);
    std::cout << std::endl;
  }

  torch::manual_seed(world.rank());  // different data and different first weights: DataParallel makes them rank 0's
  DataParallel model(torch::nn::Linear(100, 10), world);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  for (int step = 0; step < 20; ++step) {
    model(torch::randn({8, 100}, world.device())).square().mean().backward();
    sgd.step();
    sgd.zero_grad();
  }

  Tensors weights;
  all_gather(weights, model->weight.detach());
  bool equal = true;
  for (const torch::Tensor& weight : weights) equal = equal && weight.equal(weights[0]);
  if (world.rank() == 0)
    std::cout << "trained 20 steps, the ranks' weights are " << (equal ? "equal" : "NOT equal") << std::endl;
  return equal ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
