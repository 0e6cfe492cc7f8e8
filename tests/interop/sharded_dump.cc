// Trains the language model of tests/support/gpt_stack.h split over the ranks, for sharded_test.py:
//
//   trireme launch -n 2 sharded_dump parameters OUT       5 steps of Adam; OUT gets the whole weights
//
// In double: some gradients are zero but for rounding, and Adam makes steps of whatever is left.
#include <trireme/trireme.h>

#include <iostream>
#include <string>

#include "../support/gpt_stack.h"

using namespace trireme;

namespace {

void run(const std::string& mode, const std::string& out, const World& world) {
  const test::GptShape shape{.width = 256, .layers = 3, .heads = 8, .words = 64, .length = 16};
  constexpr int64_t kRows = 2, kSteps = 5;
  auto net = std::make_shared<test::GptStack>(shape);
  net->to(torch::kDouble);
  ShardedDataParallel model(net, world,
                            {.shard = mode == "gradients" ? Shard::gradients : Shard::parameters, .unit_size = 1});
  torch::optim::Adam adam(model.parameters(), 1e-3);
  for (int64_t step = 0; step < kSteps; ++step) {
    const torch::Tensor mine =
        test::gpt_tokens(shape, kRows * world.size(), step % 2).narrow(0, kRows * world.rank(), kRows).clone();
    test::gpt_loss(model(mine.narrow(1, 0, shape.length)), mine).backward();
    adam.step();
    adam.zero_grad();
  }
  const auto whole = model.gathered();
  if (world.rank() == 0) io::save_safetensors(out, io::state_dict(*net));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw UsageError("sharded_dump gradients|parameters OUT");
  run(argv[1], argv[2], init_parallel_env());
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
