// What the ranks exchange travels while they compute. Seen by the order in which things begin and end, not by times: a
// tensor is on its way before the end of a product that does not need it.
#include <torch/csrc/autograd/profiler.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "cases.h"
#include "trireme/watch/ring.h"

namespace trireme::test {
namespace {

constexpr int64_t kOverlapWidth = 640;  // the weights of a layer are a unit of their own

// When each product of matrices of this thread has ended.
std::vector<int64_t> g_products;

std::unique_ptr<at::ObserverContext> at_begin(const at::RecordFunction&) {
  return nullptr;
}
void at_end(const at::RecordFunction& function, at::ObserverContext*) {
  const std::string_view name = function.name();
  if (name == "aten::mm" || name == "aten::addmm") g_products.push_back(watch::now_ns());
}

std::vector<int64_t> products_of(const std::function<void()>& work) {
  g_products.clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(at_begin, at_end));
  work();
  at::removeCallback(handle);
  return g_products;
}

// The launcher's view of what this process has called. Under mpirun there is none.
std::unique_ptr<watch::Ring> own_ring(const World& world) {
  if (std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMI_RANK")) {
    if (world.rank() == 0) std::cout << "the next case looks at nothing: mpirun does not record calls" << std::endl;
    return nullptr;
  }
  return watch::Ring::map(std::stoi(setting("TRIREME_WATCH_FD")), watch::Access::read);
}

// When the program asked for the long calls of this operation since then; none of them may have kept it waiting.
std::vector<int64_t> asked_since(const watch::Ring& ring, int64_t since, std::string_view operation) {
  std::vector<int64_t> asked;
  for (const watch::CallRecord& call : ring.calls()) {
    if (call.enqueued < since || call.bytes < 50'000 || call.operation != operation) continue;
    require(call.blocking == 0, fmt::format("{} of {} bytes has kept the program waiting", operation, call.bytes));
    asked.push_back(call.enqueued);
  }
  std::sort(asked.begin(), asked.end());
  return asked;
}

// The sum of the input's gradients travels while the weights' gradients are computed.
void overlap_of_split_layers(const World& world) {
  if (world.size() == 1) return;
  const auto ring = own_ring(world);
  if (!ring) return;
  const int64_t rows = 4 * world.size();
  for (const bool sequence_parallel : {false, true}) {
    torch::manual_seed(1);
    nn::ColumnParallelLinear layer(
        kOverlapWidth, 4 * world.size(), world,
        nn::ColumnParallelOptions{.gather_output = false, .sequence_parallel = sequence_parallel});
    torch::Tensor x = numbers({8, rows, kOverlapWidth}, 1).requires_grad_();
    const torch::Tensor loss = layer(sequence_parallel ? nn::split_sequence(x, world) : x).sum();
    const int64_t begin = watch::now_ns();
    const std::vector<int64_t> products = products_of([&] { loss.backward(); });
    const auto asked = asked_since(*ring, begin, sequence_parallel ? "reduce_scatter" : "all_reduce");
    require(products.size() == 2 && asked.size() == 1,
            fmt::format("{} products and {} sums in backward", products.size(), asked.size()));
    require(products[0] < asked[0] && asked[0] < products[1],
            "the weights' gradient was not computed while the input's was summed");
  }
}

// A pipeline with zero_bubble asks for the input's gradient first and for the weight's later. Each half computes and
// sends its own gradient alone; both have the bits of a whole backward.
void halves_of_a_split_backward(const World& world) {
  if (world.size() == 1) return;
  const auto ring = own_ring(world);
  if (!ring) return;
  for (const bool sequence_parallel : {false, true}) {
    torch::manual_seed(1);
    nn::ColumnParallelLinear layer(
        kOverlapWidth, 4 * world.size(), world,
        nn::ColumnParallelOptions{.gather_output = false, .sequence_parallel = sequence_parallel});
    const torch::Tensor x = numbers({8, 4 * world.size(), kOverlapWidth}, 1).requires_grad_();
    const auto loss = [&] { return layer(sequence_parallel ? nn::split_sequence(x, world) : x).square().sum(); };
    loss().backward();
    for (const bool of_input : {true, false}) {
      const torch::Tensor& wanted = of_input ? x : layer->weight;
      const torch::Tensor output = loss();
      const int64_t begin = watch::now_ns();
      torch::Tensor gradient;
      const auto products = products_of([&] { gradient = torch::autograd::grad({output}, {wanted})[0]; });
      const auto sums = asked_since(*ring, begin, sequence_parallel ? "reduce_scatter" : "all_reduce");
      const std::string what = of_input ? "the input" : "the weight";
      require(products.size() == 1 && sums.size() == (of_input ? 1u : 0u),
              fmt::format("{} products and {} sums for {}", products.size(), sums.size(), what));
      require(gradient.equal(wanted.grad()), "other bits of the gradient of " + what);
    }
  }
}

// Parameters travel before the layers that use them are due, gradients before the backward has ended.
void overlap_of_sharded_layers(const World& world) {
  if (world.size() == 1) return;
  const auto ring = own_ring(world);
  if (!ring) return;
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::parameters}) {
    torch::manual_seed(1);
    torch::nn::Sequential net;
    for (int i = 0; i < 3; ++i)
      net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kOverlapWidth, kOverlapWidth).bias(false)));
    ShardedDataParallel model(net, world, {.shard = shard, .unit_size = 1});
    require(model.sync()->unit_count() == 3, "a layer is not a unit");
    torch::optim::SGD sgd(model.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      const std::string what = fmt::format("stage {}, step {}", static_cast<int>(shard) + 1, step);
      const torch::Tensor x = numbers({4, kOverlapWidth}, step).requires_grad_();
      torch::Tensor loss;
      int64_t begin = watch::now_ns();
      const auto forward = products_of([&] { loss = model(x).sum(); });
      const auto gathers = asked_since(*ring, begin, "all_gather");
      begin = watch::now_ns();
      const auto backward = products_of([&] { loss.backward(); });
      const auto sums = asked_since(*ring, begin, "reduce_scatter");
      sgd.step();
      sgd.zero_grad();
      if (step < 2) continue;  // these learn the order
      require(forward.size() == 3 && gathers.size() >= 2 && sums.size() == 3,
              fmt::format("{}: {} products, {} gathers, {} sums", what, forward.size(), gathers.size(), sums.size()));
      require(gathers[1] < forward[0], what + ": the second layer does not travel while the first computes");
      require(sums[0] < backward.back(), what + ": no gradient travels before the backward ends");
    }
  }
}

}  // namespace

std::vector<Case> overlap_cases() {
  return {{"overlap_of_split_layers", overlap_of_split_layers},
          {"halves_of_a_split_backward", halves_of_a_split_backward},
          {"overlap_of_sharded_layers", overlap_of_sharded_layers}};
}

}  // namespace trireme::test
