// A collective of your own from messages: all_reduce on a ring, in two turns of size - 1 steps.
//
//   $ trireme launch -n 3 build/bin/example_ring
//   ring of 3: 12 elements, the same as all_reduce
//
// The tensor is cut into as many parts as there are ranks. In the first turn each rank passes a part on and adds what
// comes to its own; then one rank has the whole sum of each part. In the second turn the sums go round.
#include <trireme/trireme.h>

#include "terminal.h"

using namespace trireme;

void exchange(const torch::Tensor& out, const torch::Tensor& in, const Group& group) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  for (const Work& work :
       batch_isend_irecv({{P2POp::Kind::send, out, next, group}, {P2POp::Kind::recv, in, before, group}}))
    work.wait();
}

void ring_all_reduce(const torch::Tensor& tensor, const Group& group) {
  const int size = group.size();
  const std::vector<torch::Tensor> parts = tensor.view(-1).tensor_split(size);
  const auto part = [&](int i) { return parts[static_cast<size_t>(((i % size) + size) % size)]; };
  for (int step = 0; step < size - 1; ++step) {
    torch::Tensor mine = part(group.rank() - step - 1);
    const torch::Tensor arrived = torch::empty_like(mine);
    exchange(part(group.rank() - step), arrived, group);
    mine += arrived;
  }
  for (int step = 0; step < size - 1; ++step) exchange(part(group.rank() + 1 - step), part(group.rank() - step), group);
}

int main(int argc, char** argv) try {
  options(argc, argv);
  World world = init_parallel_env();
  torch::Tensor ours = torch::arange(12, torch::kFloat) * (world.rank() + 1);
  torch::Tensor theirs = ours.clone();
  ring_all_reduce(ours, world);
  all_reduce(theirs);
  const bool equal = ours.allclose(theirs);
  if (world.rank() == 0)
    std::cout << fmt::format("ring of {}: {} elements, {} as all_reduce\n", world.size(), ours.numel(),
                             equal ? "the same" : "NOT the same")
              << std::flush;
  return equal ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
