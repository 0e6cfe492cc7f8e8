// Every process has a tensor; all_reduce makes it the sum of all of them, everywhere.
//
//   $ trireme launch -n 2 --tee all build/bin/example_allreduce
//   rank 0 of 2 by shm: 3 3 3
//   node1:1 rank 1 of 2 by shm: 3 3 3
//
// The same program under an MPI launcher: mpirun -n 2 build/bin/example_allreduce
#include <trireme/trireme.h>

#include "terminal.h"

using namespace trireme;

int main(int argc, char** argv) try {
  options(argc, argv);
  World world = init_parallel_env();
  torch::Tensor tensor = torch::full({3}, world.rank() + 1, torch::TensorOptions(torch::kLong).device(world.device()));
  all_reduce(tensor);
  tensor = tensor.cpu();
  const int64_t* values = tensor.const_data_ptr<int64_t>();
  std::cout << fmt::format("rank {} of {} by {}: {} {} {}\n", world.rank(), world.size(), get_backend(), values[0],
                           values[1], values[2])
            << std::flush;
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
