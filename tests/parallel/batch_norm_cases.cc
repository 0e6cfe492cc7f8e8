// Batch normalisation over all ranks against one process on the joined batch.
#include "cases.h"

namespace trireme::test {
namespace {

using torch::nn::BatchNormOptions;

// Rank r has 2 + r rows.
torch::Tensor uneven_share(const torch::Tensor& whole, const Group& group) {
  const int64_t rank = group.rank();
  return whole.narrow(0, 2 * rank + rank * (rank - 1) / 2, 2 + rank);
}
int64_t uneven_rows(int64_t ranks) {
  return 2 * ranks + ranks * (ranks - 1) / 2;
}

torch::Tensor summed(const torch::Tensor& gradient) {
  torch::Tensor sum = gradient.clone();
  all_reduce(sum);
  return sum;
}

// `ours` is marked, `alone` is not; both are equal. Two steps, so that the running statistics are more than one update.
template <typename Net>
void compare(const World& world, const std::string& what, Net ours, Net alone, at::IntArrayRef sample, int layers = 1) {
  require(convert_sync_batch_norm(*ours, world) == layers, what + ": layers to mark");
  std::vector<int64_t> sizes{uneven_rows(world.size())};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  for (int step = 0; step < 2; ++step) {
    torch::Tensor whole = (numbers(sizes, step) * 3 + 5).requires_grad_();
    torch::Tensor mine = uneven_share(whole.detach(), world).clone().requires_grad_();
    const torch::Tensor expected = alone->forward(whole);
    const torch::Tensor factors = numbers(expected.sizes(), 99);  // else the gradients are zeros
    const torch::Tensor got = ours->forward(mine);
    require_near(got, uneven_share(expected, world), 1e-5, what + ": output");
    (expected * factors).sum().backward();
    (got * uneven_share(factors, world)).sum().backward();
    require_near(mine.grad(), uneven_share(whole.grad(), world), 1e-5, what + ": gradient of the input");
  }
  for (const auto& item : alone->named_parameters())
    require_near(summed(ours->named_parameters()[item.key()].grad()), item.value().grad(), 1e-5,
                 what + ": gradient of " + item.key());
  for (const auto& item : alone->named_buffers())
    require_near(ours->named_buffers()[item.key()].to(torch::kDouble), item.value().to(torch::kDouble), 1e-5,
                 what + ": " + item.key());
}

template <typename Impl>
std::shared_ptr<Impl> layer(const BatchNormOptions& options) {
  auto result = std::make_shared<Impl>(options);
  const torch::NoGradGuard no_grad;
  if (result->weight.defined()) result->weight.copy_(numbers({3}, 41)), result->bias.copy_(numbers({3}, 42));
  return result;
}

template <typename Impl>
void compare_layer(const World& world, const std::string& what, at::IntArrayRef sample) {
  compare(world, what, layer<Impl>(BatchNormOptions(3)), layer<Impl>(BatchNormOptions(3)), sample);
  const auto plain = BatchNormOptions(3).affine(false);
  compare(world, what + " without weight", layer<Impl>(plain), layer<Impl>(plain), sample);
  const auto stateless = BatchNormOptions(3).track_running_stats(false);
  compare(world, what + " without statistics", layer<Impl>(stateless), layer<Impl>(stateless), sample);
  const auto average = BatchNormOptions(3).momentum(std::nullopt);
  compare(world, what + " with a cumulative average", layer<Impl>(average), layer<Impl>(average), sample);
}

void batch_norm_layers(const World& world) {
  compare_layer<torch::nn::BatchNorm1dImpl>(world, "1d", {3});
  compare_layer<torch::nn::BatchNorm1dImpl>(world, "1d of sequences", {3, 5});
  compare_layer<torch::nn::BatchNorm2dImpl>(world, "2d", {3, 4, 5});
  compare_layer<torch::nn::BatchNorm3dImpl>(world, "3d", {3, 2, 3, 4});
}

struct TypedMembers : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(norm(conv(x))).flatten(1); }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).bias(false)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(3));
};

torch::nn::Sequential sequence() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)), torch::nn::BatchNorm1d(3),
                               torch::nn::ReLU(), torch::nn::Linear(3, 2));
}

void batch_norm_in_models(const World& world) {
  compare(world, "typed members", seeded<TypedMembers>(), seeded<TypedMembers>(), {2, 6, 6});
  compare(world, "sequential", sequence(), sequence(), {4});
}

struct ToLayoutImpl : torch::nn::Module {
  explicit ToLayoutImpl(bool channels_last)
      : layout(channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous) {}
  torch::Tensor forward(const torch::Tensor& x) { return x.contiguous(layout); }
  torch::MemoryFormat layout;
};
TORCH_MODULE(ToLayout);

/// Trained in fused passes: channels last. With `mixed`, on rank 0 alone: the others take the way of the plain layers, and
/// the exchange must fit all the same.
struct FusedUnits : torch::nn::Module {
  explicit FusedUnits(bool is_fused)
      : layout(is_fused ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = first->forward(x.contiguous(layout));
    return second->forward_adding(y, y).contiguous();
  }
  torch::MemoryFormat layout;
  nn::ConvBnAct first = register_module("first", nn::ConvBnAct({.in = 2, .out = 6, .kernel = 3}));
  nn::BatchNormAct second =
      register_module("second", nn::BatchNormAct({.channels = 6, .activation = nn::Activation::silu}));
};

void batch_norm_fused(const World& world) {
  for (const bool mixed : {false, true}) {
    const auto make = [](bool is_fused) {
      torch::manual_seed(7);
      return std::make_shared<FusedUnits>(is_fused);
    };
    compare(world, mixed ? "fused on rank 0" : "fused", make(!mixed || world.rank() == 0), make(false), {2, 6, 6}, 2);
    auto plain = layer<torch::nn::BatchNorm2dImpl>(BatchNormOptions(3));
    compare(world, "a layer of libtorch", torch::nn::Sequential(ToLayout(!mixed || world.rank() == 0), plain),
            torch::nn::Sequential(ToLayout(false), layer<torch::nn::BatchNorm2dImpl>(BatchNormOptions(3))), {3, 4, 5});
  }
}

void batch_norm_of_libtorch_fused(const World& world) {
  if (world.size() == 1) return;
  auto marked = layer<torch::nn::BatchNorm2dImpl>(BatchNormOptions(3));
  convert_sync_batch_norm(*marked, world);
  const torch::Tensor y = marked->forward(numbers({2, 3, 4, 4}, 1).contiguous(torch::MemoryFormat::ChannelsLast));
  require(y.grad_fn()->name().find("NormFunction") != std::string::npos, "fused, not " + y.grad_fn()->name());
}

// With DataParallel, equal batches, as one would train.
void batch_norm_training(const World& world) {
  DataParallel model(sequence(), world);
  convert_sync_batch_norm(*model.module());
  auto alone = sequence();
  torch::optim::SGD ours(model->parameters(), 0.1), theirs(alone->parameters(), 0.1);
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor x = numbers({8, 4}, step) * 2 + 1;
    ours.zero_grad(), theirs.zero_grad();
    model(share(x, world)).square().mean().backward();
    alone->forward(x).square().mean().backward();
    ours.step(), theirs.step();
  }
  require_near(flat(*model.module()), flat(*alone), 1e-5, "trained with SyncBatchNorm");
  require_near(model->buffers()[0], alone->buffers()[0], 1e-5, "running mean");
  model->eval(), alone->eval();
  const torch::Tensor x = numbers({1 + world.rank(), 4}, 3);  // no collective, so anything may differ
  if (world.rank() == 0) model(x);
  require_near(model(x), alone->forward(x), 1e-5, "evaluation");
}

void batch_norm_half(const World& world) {
  auto ours = layer<torch::nn::BatchNorm2dImpl>(BatchNormOptions(3));
  auto alone = layer<torch::nn::BatchNorm2dImpl>(BatchNormOptions(3));
  convert_sync_batch_norm(*ours, world);
  const torch::Tensor whole = numbers({uneven_rows(world.size()), 3, 4, 4}, 1).to(torch::kBFloat16);
  const torch::Tensor got = ours->forward(uneven_share(whole, world));
  require(got.scalar_type() == torch::kBFloat16, "bfloat16 in, bfloat16 out");
  require_near(got.to(torch::kFloat), uneven_share(alone->forward(whole), world).to(torch::kFloat), 2e-2, "bfloat16");
}

void batch_norm_refused(const World& world) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(BatchNormOptions(4).affine(false).track_running_stats(false)));
  require_error([&] { convert_sync_batch_norm(*net, world); }, "UsageError", {"batch normalisation 0", "affine(true)"});
  require(convert_sync_batch_norm(*torch::nn::Linear(2, 2), world) == 0, "nothing to mark");
}

// A rank without data cannot take part in the statistics of the others.
void batch_norm_and_join(const World& world) {
  if (world.size() == 1) return;
  DataParallel model(sequence(), world);
  model.join([] {});
  convert_sync_batch_norm(*model.module(), world);
  require_error([&] { model.join([] {}); }, "UsageError", {"join()", "SyncBatchNorm"});
}

// An unmarked layer beside marked ones, with another number of calls on each rank.
void batch_norm_unmarked(const World& world) {
  auto marked = sequence();
  convert_sync_batch_norm(*marked, world);
  auto plain = layer<torch::nn::BatchNorm1dImpl>(BatchNormOptions(3));
  for (int call = 0; call <= world.rank(); ++call) {
    const torch::Tensor x = numbers({4, 3}, call + 10 * world.rank());
    const torch::Tensor normal = (x - x.mean(0)) / (x.var(0, false) + 1e-5).sqrt();
    require_near(plain->forward(x), normal * plain->weight + plain->bias, 1e-4, "a layer that is not marked");
  }
}

// The part of the model in the checkpoint is computed twice, with the collectives of the layer in both computations.
void batch_norm_in_checkpoint(const World& world) {
  auto plain = sequence(), ours = sequence();
  convert_sync_batch_norm(*plain, world), convert_sync_batch_norm(*ours, world);
  for (int step = 0; step < 2; ++step) {
    const torch::Tensor x = uneven_share(numbers({uneven_rows(world.size()), 4}, step) * 3 + 5, world);
    const torch::Tensor scale = numbers({4}, 99);
    const auto gradient_of_input = [&](const auto& forward) {
      const torch::Tensor in = x.clone().requires_grad_();
      forward(in).square().sum().backward();
      return in.grad();
    };
    const torch::Tensor expected =
        gradient_of_input([&](const torch::Tensor& in) { return plain->forward(in * scale); });
    const torch::Tensor got = gradient_of_input([&](const torch::Tensor& in) {
      return checkpoint([ours](const torch::Tensor& a, const torch::Tensor& b) mutable { return ours->forward(a * b); },
                        in, scale);
    });
    require(got.equal(expected), "gradient of the input");
  }
  for (const auto& item : plain->named_parameters())
    require(ours->named_parameters()[item.key()].grad().equal(item.value().grad()), "gradient of " + item.key());
  for (const char* statistic : {"1.running_mean", "1.running_var"})
    require(ours->named_buffers()[statistic].equal(plain->named_buffers()[statistic]), statistic);
}

}  // namespace

std::vector<Case> batch_norm_cases() {
  return {{"batch_norm_layers", batch_norm_layers},     {"batch_norm_in_models", batch_norm_in_models},
          {"batch_norm_fused", batch_norm_fused},       {"batch_norm_of_libtorch_fused", batch_norm_of_libtorch_fused},
          {"batch_norm_training", batch_norm_training}, {"batch_norm_half", batch_norm_half},
          {"batch_norm_refused", batch_norm_refused},   {"batch_norm_and_join", batch_norm_and_join},
          {"batch_norm_unmarked", batch_norm_unmarked}, {"batch_norm_in_checkpoint", batch_norm_in_checkpoint}};
}

}  // namespace trireme::test
