// Parameters beside layers that are split: the ranks over which those are split have the same, or learn that they have
// not.
#include <optional>

#include "cases.h"

namespace trireme::test {
namespace {

// A split pair of layers and what each rank has whole: a norm, a bias, a plain layer.
struct Replicated : torch::nn::Module {
  explicit Replicated(const Group& group)
      : plain(register_module("plain", torch::nn::Linear(6, 6))),
        up(register_module("up",
                           nn::ColumnParallelLinear(6, 8, group, nn::ColumnParallelOptions{.gather_output = false}))),
        down(register_module("down",
                             nn::RowParallelLinear(8, 4, group, nn::RowParallelOptions{.input_is_parallel = true}))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})))) {}
  torch::Tensor forward(const torch::Tensor& x) { return norm(down(torch::gelu(up(plain(x))))); }
  torch::nn::Linear plain;
  nn::ColumnParallelLinear up;
  nn::RowParallelLinear down;
  torch::nn::LayerNorm norm;
};

// Two ranks on the model axis, the others beside them on the data axis.
struct Training {
  explicit Training(const World& world, std::optional<Shard> shard,
                    const std::function<void(Replicated&, const Mesh&)>& before = {})
      : mesh(world, {{"data", -1}, {"model", 2}}) {
    torch::manual_seed(6);
    net = std::make_shared<Replicated>(mesh["model"]);
    if (before) before(*net, mesh);
    if (shard)
      sharded.emplace(net, mesh["data"], ShardedOptions{.shard = *shard});
    else
      averaged.emplace(net, mesh["data"]);
    sgd.emplace(shard ? sharded->parameters() : averaged->parameters(), 0.1);
  }
  torch::Tensor loss(const torch::Tensor& x) {
    return (sharded ? sharded->forward(x) : averaged->forward(x)).pow(3).mean();
  }
  // Steps from the first backward to the given one.
  void run(int from, int to, const std::function<void()>& before_step = {}) {
    for (int i = from; i <= to; ++i) {
      loss(share(numbers({8, 6}, i), mesh["data"])).backward();
      if (before_step) before_step();
      sgd->step();
      sgd->zero_grad();
    }
  }
  bool is_second() const { return mesh.rank("model") == 1; }

  Mesh mesh;
  std::shared_ptr<Replicated> net;
  std::optional<DataParallel<std::shared_ptr<Replicated>>> averaged;
  std::optional<ShardedDataParallel<std::shared_ptr<Replicated>>> sharded;
  std::optional<torch::optim::SGD> sgd;
};

const std::initializer_list<std::optional<Shard>> kWrappers = {std::nullopt, Shard::optimizer, Shard::parameters};

void require_differs(const std::function<void()>& f, const std::string& name, Where where = Where::current()) {
  const std::string error = error_of(f);
  require(error.find(fmt::format("parameter {} differs between ranks", name)) != std::string::npos, error, where);
}

void replicas_loaded_on_one_rank(const World& world) {
  if (world.size() % 2 != 0) return;
  for (const std::optional<Shard>& shard : kWrappers)
    for (const std::string name : {"plain.bias", "norm.weight", "down.bias"})
      require_differs(
          [&] {
            const auto load = [&](Replicated& net, const Mesh& mesh) {
              const torch::NoGradGuard no_grad;
              if (mesh.rank("model") == 1) net.named_parameters()[name][0] += 1e-6;
            };
            const Training training(world, shard, load);
          },
          name);
}

// Each backward up to the 8th that compares finds what has happened since the last one that did.
void replicas_that_drift(const World& world) {
  if (world.size() % 2 != 0) return;
  for (const std::optional<Shard>& shard : kWrappers)
    for (const int looks : {2, 4, 8}) {
      Training training(world, shard);
      training.run(1, looks - 2);
      require_differs(
          [&] {
            training.run(looks - 1, looks, [&] {
              const torch::Tensor bias = optim::piece_of(training.net->plain->bias);
              if (training.is_second() && bias.numel() > 0)
                bias.mutable_grad() += 0.01;  // the layers compare more roughly
            });
          },
          "plain.bias");
    }
}

// The way to clip that knows nothing of the ranks: each scales its gradients by a norm of its own.
void replicas_torch_clipping(const World& world) {
  if (world.size() % 2 != 0) return;
  Training training(world, std::nullopt);
  require_differs(
      [&] { training.run(1, 2, [&] { torch::nn::utils::clip_grad_norm_(training.net->parameters(), 1e-3); }); },
      "plain.weight");
}

void replicas_stay_equal(const World& world) {
  if (world.size() % 2 != 0) return;
  for (const std::optional<Shard>& shard : kWrappers) {
    Training training(world, shard);
    training.run(1, 9, [&] {
      optim::clip_grad_norm(shard ? training.sharded->parameters() : training.averaged->parameters(), 1e-2);
    });
  }
}

}  // namespace

std::vector<Case> replica_cases() {
  return {{"replicas_loaded_on_one_rank", replicas_loaded_on_one_rank},
          {"replicas_that_drift", replicas_that_drift},
          {"replicas_torch_clipping", replicas_torch_clipping},
          {"replicas_stay_equal", replicas_stay_equal}};
}

}  // namespace trireme::test
