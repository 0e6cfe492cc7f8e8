// One rank of a job that hangs: trireme launch -n 2 hang_ranks CASE
//
//   collectives  rank 0 is in all_reduce, rank 1 in broadcast
//   stop         rank 1 stops itself while the others wait for it
//   loop         rank 1 computes until the file `go` is there
//   loader       rank 1's dataset does not deliver before the file `go` is there
//   storage      no rank's dataset delivers before the file `go` is there
//   alone        every rank computes until the file `go` is there
//   run          all_reduces until rank 0 finds the file `go`; rank 0 makes the file `running` first
//   late_data    trains until rank 0 finds the file `go`; rank 1's dataset takes 300 ms longer for a sample
//   late_forward the same; its forward pass takes 300 ms longer
//   groups       two groups, used in one order by rank 0 and in the other by rank 1
//   backwards    each rank runs the backwards of two models in another order
//   steps        a few all_reduces, some of them asynchronous
#include <fmt/core.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "trireme/comm/collectives.h"
#include "trireme/core/error.h"
#include "trireme/data/loader.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/parallel/init.h"
#include "trireme/watch/report.h"

namespace trireme {
namespace {

bool may_go_on() {
  return std::filesystem::exists("go");
}

[[gnu::noinline]] void compute_without_end() {
  while (!may_go_on()) {
  }
}

// Its samples come when the file is there.
class SlowDataset : public data::Dataset {
 public:
  int64_t size() const override { return 4; }
  data::Sample get(int64_t) const override {
    while (!may_go_on()) ::usleep(20'000);  // layers: sleep ok, because a stall is what this dataset imitates
    return {torch::ones({2}), torch::ones({})};
  }
};

void load_data() {
  data::Loader loader(std::make_shared<SlowDataset>(), {.batch_size = 4, .workers = 1}, RankInfo{0, 1});
  for (const data::Batch& batch : loader) batch.data.sum();
}

void reduce_until_told(const World& world) {
  if (world.rank() == 0) std::ofstream("running") << "yes\n";
  for (torch::Tensor end = torch::zeros({1000}); end[0].item<float>() == 0;) {
    if (world.rank() == 0 && may_go_on()) end.fill_(1);
    all_reduce(end);
  }
}

constexpr std::chrono::milliseconds kLate(300);  // against the noise of a busy machine

class LateDataset : public data::Dataset {
 public:
  explicit LateDataset(bool late) : late_(late) {}
  int64_t size() const override { return 1'000'000; }
  data::Sample get(int64_t) const override {
    if (late_) std::this_thread::sleep_for(kLate);  // layers: sleep ok, because a slow rank is what this imitates
    return {torch::ones({2}), torch::ones({})};
  }

 private:
  const bool late_;
};

struct LateNetImpl : torch::nn::Module {
  explicit LateNetImpl(bool is_late) : late(is_late) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (late) std::this_thread::sleep_for(kLate);  // layers: sleep ok, because a slow rank is the fault
    return layer(x);
  }
  const bool late;
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 1));
};
TORCH_MODULE(LateNet);

// Each rank runs the backwards of two models, in another order.
void cross_backwards(const World& world) {
  DataParallel one(torch::nn::Linear(2, 1), world), other(torch::nn::Linear(2, 1), world);
  std::vector<torch::Tensor> losses = {one(torch::ones({1, 2})).sum(), other(torch::ones({1, 2})).sum()};
  if (world.rank() == 1) std::swap(losses[0], losses[1]);
  for (const torch::Tensor& loss : losses) loss.backward();
}

void train_with_late_rank(const World& world, bool late_data, bool late_forward) {
  DataParallel model(LateNet(late_forward), world);
  data::Loader loader(std::make_shared<LateDataset>(late_data), {.batch_size = 1, .workers = 1}, RankInfo{0, 1});
  torch::Tensor end = torch::zeros({1});
  for (const data::Batch& batch : loader) {
    model(batch.data).sum().backward();
    if (world.rank() == 0 && may_go_on()) end.fill_(1);
    all_reduce(end);
    if (end.item<float>() != 0) return;
  }
}

void use_groups(const World& world) {
  const Group first = world.new_group(world.ranks());
  const Group second = world.new_group(world.ranks());
  torch::Tensor x = torch::ones({10});
  all_reduce(x, ReduceOp::sum, world.rank() == 0 ? first : second);
  all_reduce(x, ReduceOp::sum, world.rank() == 0 ? second : first);
}

void run(const std::string& name) {
  const World world = init_parallel_env();
  const bool first = world.rank() == 0;
  const bool faulty = world.rank() == 1;
  torch::Tensor x = torch::ones({1000});
  for (int i = 0; i < 16; ++i) all_reduce(x);
  if (name == "collectives" && !first) {
    broadcast(torch::ones({10}), 0);
    return;
  }
  if (name == "stop" && faulty) ::raise(SIGSTOP);
  if (name == "loop" && faulty) compute_without_end();
  if ((name == "loader" && faulty) || name == "storage") load_data();
  if (name == "alone") {
    watch::set_step(1);
    compute_without_end();
  }
  if (name == "run") reduce_until_told(world);
  if (name.starts_with("late_"))
    return train_with_late_rank(world, faulty && name == "late_data", faulty && name == "late_forward");
  if (name == "groups") use_groups(world);
  if (name == "backwards") cross_backwards(world);
  if (name == "steps") all_reduce_async(x).wait();
  all_reduce(x);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 2) return trireme::exit_code::kUsage;
  try {
    trireme::run(argv[1]);
    return 0;
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
