// One rank of a job in which one rank leaves early with exit code 0: trireme launch -n 2 early_exit_ranks CASE LEAVER
//
// CASE is the call that the leaver does not make any more: init_parallel_env, new_group, split, data_parallel,
// checkpoint, all_reduce, send. The leaver makes the file `left` first. Three cases differ:
//   uncaught   as new_group, and nothing catches the error
//   forgotten  no rank joins the job, and each reads all samples
//   alone      everyone but LEAVER leaves, when all is done; LEAVER goes on alone until they have ended
#include <fmt/core.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/data/loader.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/io/checkpoint/checkpoint.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/store/ended_ranks.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

[[noreturn]] void leave() {
  std::ofstream("left") << "rank " << get_rank() << "\n";
  std::exit(0);
}

void work_alone(const World& world) {
  store::EndedRanks ended(world.store(), world.env().restart_count);
  const Deadline deadline = Deadline::in(60s);
  while (static_cast<int>(ended.list().size()) < world.size() - 1) {
    if (deadline.passed()) throw UsageError("the other ranks have not ended");
  }
  fmt::print("rank {} has worked alone\n", world.rank());
}

void call(const std::string& name, const World& world, int leaver) {
  torch::Tensor x = torch::ones({1000});
  torch::nn::Linear model(2, 2);
  if (name == "new_group" || name == "uncaught") world.new_group(world.ranks());
  if (name == "split") world.split(0, world.rank());
  if (name == "data_parallel") DataParallel parallel(model, world);
  if (name == "checkpoint") Checkpoint("checkpoints", world).save({.model = model}, {.step = 1});
  if (name == "all_reduce") all_reduce(x);
  if (name == "send") send(x, leaver);
}

void run(const std::string& name, int leaver) {
  const bool leaves = get_rank() == leaver;
  if (name == "forgotten") {
    const data::Loader loader(data::TensorDataset(torch::ones({10, 2}), torch::ones({10})));
    leave();
  }
  if (name == "init_parallel_env" && leaves) leave();
  const World world = init_parallel_env();
  torch::Tensor x = torch::ones({1000});
  for (int i = 0; i < 20; ++i) all_reduce(x);
  if (name == "alone" && leaves) return work_alone(world);
  if (name == "alone" || leaves) leave();
  call(name, world, leaver);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 3) return trireme::exit_code::kUsage;
  if (argv[1] == std::string("uncaught")) {
    trireme::run(argv[1], std::stoi(argv[2]));
    return 0;
  }
  try {
    trireme::run(argv[1], std::stoi(argv[2]));
    return 0;
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
