// all_reduce between ranks: Trireme beside libtorch's own Gloo, in one run.
//
//   $ trireme launch -n 2 build/bin/allreduce_bench
//   $ trireme launch --ips alpha,beta -n 2 build/bin/allreduce_bench 65536         # on both hosts; sizes up to 64 KB
//
// Prints a Markdown table on rank 0. Both take turns, size by size, on the same tensor; each call begins after a
// barrier, so no rank pays for the lateness of another. Every result of either is checked: `wrong` counts elements that
// are not the exact sum, over all ranks.
#include <trireme/trireme.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/comm/c10d_store.h"

using namespace trireme;

namespace {

constexpr size_t kSizes[] = {8,         64,      256,     1 << 10,  4 << 10,  16 << 10, 64 << 10,
                             256 << 10, 1 << 20, 4 << 20, 25 << 20, 64 << 20, 256 << 20};
constexpr double kBytesToMove = 1 << 29;  // for each size and each contestant

struct Result {
  std::vector<double> microseconds;
  int64_t wrong = 0;

  double median() {
    std::sort(microseconds.begin(), microseconds.end());
    return microseconds[microseconds.size() / 2];
  }
};

using AllReduce = std::function<void(torch::Tensor&)>;

c10::intrusive_ptr<c10d::ProcessGroupGloo> make_gloo(const World& world) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  const char* const between_hosts = std::getenv("GLOO_SOCKET_IFNAME");  // the launcher sets it
  options->devices.push_back(world.env().node_count > 1 && between_hosts != nullptr
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(between_hosts)
                                 : c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto store = comm::make_c10d_store(world.store(), "bench/", std::chrono::minutes(1));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, world.rank(), world.size(), options);
}

// Whole numbers small enough for the sum to be exact in float.
torch::Tensor input_of(const World& world, size_t bytes) {
  return torch::arange(static_cast<int64_t>(bytes / 4), torch::kLong)
      .remainder_(1021)
      .add_(world.rank())
      .to(torch::kFloat);
}

void time_once(const World& world, const AllReduce& all_reduce_by, torch::Tensor& data, const torch::Tensor& input,
               const torch::Tensor& expected, Result& result) {
  data.copy_(input);
  barrier(world);
  const auto begin = std::chrono::steady_clock::now();
  all_reduce_by(data);
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
  result.microseconds.push_back(elapsed.count());
  result.wrong += data.ne(expected).sum().item<int64_t>();
}

int64_t over_all_ranks(int64_t number) {
  const torch::Tensor sum = torch::tensor({number}, torch::kLong);
  all_reduce(sum);
  return sum.item<int64_t>();
}

}  // namespace

int main(int argc, char** argv) try {
  const size_t most = argc > 1 ? std::stoul(argv[1]) : SIZE_MAX;
  World world = init_parallel_env();
  const auto gloo = make_gloo(world);
  const AllReduce ours = [&](torch::Tensor& tensor) { all_reduce(tensor, ReduceOp::sum, world); };
  const AllReduce theirs = [&](torch::Tensor& tensor) {
    std::vector<torch::Tensor> tensors{tensor};
    gloo->allreduce(tensors, {})->wait();
  };
  if (world.rank() == 0)
    std::cout
        << "| bytes | Gloo, median us | Trireme (" << get_backend()
        << "), median us | times faster | Trireme GB/s | wrong (Gloo, Trireme) |\n|---:|---:|---:|---:|---:|---:|\n";
  for (const size_t bytes : kSizes) {
    if (bytes > most) break;
    const torch::Tensor input = input_of(world, bytes);
    const torch::Tensor expected = (input - world.rank()) * world.size() + world.size() * (world.size() - 1) / 2;
    torch::Tensor data = torch::empty_like(input);  // the same memory each time, as a bucket of gradients is
    Result gloo_result, our_result;
    const auto calls = static_cast<int>(std::clamp(kBytesToMove / static_cast<double>(bytes), 8.0, 400.0));
    for (int call = 0; call < calls; ++call) {
      time_once(world, theirs, data, input, expected, gloo_result);
      time_once(world, ours, data, input, expected, our_result);
    }
    const int64_t gloo_wrong = over_all_ranks(gloo_result.wrong);
    const int64_t our_wrong = over_all_ranks(our_result.wrong);
    const double them = gloo_result.median(), us = our_result.median();
    if (world.rank() == 0)
      std::cout << fmt::format("| {} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {}, {} |\n", bytes, them, us, them / us,
                               static_cast<double>(bytes) / us / 1000, gloo_wrong, our_wrong)
                << std::flush;
  }
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
