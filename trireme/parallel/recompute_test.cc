#include "trireme/parallel/recompute.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/test_support.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using torch::Tensor;

Tensor leaf(at::IntArrayRef sizes, int seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  return torch::randn(sizes).requires_grad_();
}

/// Calls the function directly or through checkpoint().
template <typename F, typename... T>
auto maybe(bool with_checkpoint, F f, const T&... tensors) {
  return with_checkpoint ? checkpoint(f, tensors...) : f(tensors...);
}

/// `loss(with_checkpoint, leaves)` has the same value and gradients both ways, to the bit unless there is a tolerance.
template <typename Loss>
void expect_same(const Loss& loss, double tolerance = 0) {
  std::vector<std::vector<Tensor>> results;
  for (const bool with_checkpoint : {false, true}) {
    std::vector<Tensor> leaves{leaf({3, 4}, 1), leaf({4, 4}, 2), leaf({4}, 3)};
    torch::manual_seed(5);
    const Tensor value = loss(with_checkpoint, leaves);
    value.backward();
    results.push_back({value.detach()});
    for (const Tensor& one : leaves) results.back().push_back(one.grad());
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    ASSERT_EQ(results[0][i].defined(), results[1][i].defined()) << i;
    const bool same = !results[0][i].defined() || results[0][i].allclose(results[1][i], tolerance, tolerance);
    EXPECT_TRUE(same) << i;
  }
}

TEST(Recompute, SeveralTensorsInAndOut) {
  expect_same([](bool ours, const std::vector<Tensor>& in) {
    const auto part = [](const Tensor& x, const Tensor& w, const Tensor& b) {
      return std::tuple(torch::tanh(x.matmul(w) + b), x.sum(), w.sigmoid());
    };
    const auto [y, sum, gate] = maybe(ours, part, in[0], in[1], in[2]);
    return (y * 2).sum() + sum + gate.square().mean();
  });
}

TEST(Recompute, AListAndAPairOut) {
  expect_same([](bool ours, const std::vector<Tensor>& in) {
    const std::vector<Tensor> parts = maybe(
        ours, [](const Tensor& x) { return x.tanh().chunk(2, 1); }, in[0]);
    const std::pair<Tensor, Tensor> two = maybe(
        ours, [](Tensor x, Tensor w) { return std::pair(x * 2, w.exp()); }, parts[1], in[1]);
    return parts[0].sum() + two.first.square().sum() + two.second.mean();
  });
}

TEST(Recompute, OutputsThatAreNotUsedOrNeedNoGradient) {
  expect_same([](bool ours, const std::vector<Tensor>& in) {
    const auto part = [](const Tensor& x, const Tensor& w) {
      return std::tuple(x.exp(), (x > 0).to(torch::kFloat), w.cos(), x);
    };
    const auto [y, mask, unused, same] = maybe(ours, part, in[0], in[1]);
    EXPECT_FALSE(mask.requires_grad());
    return (y * mask).sum() + same.sum();
  });
}

TEST(Recompute, CapturedLeavesAndComputedTensorsGetTheirGradients) {
  expect_same([](bool ours, const std::vector<Tensor>& in) {
    const Tensor h = in[1].tanh();  // computed before, and used inside and outside
    const auto part = [h, b = in[2]](const Tensor& x) { return (x.matmul(h) + b).sigmoid(); };
    const Tensor y = maybe(ours, part, in[0]), z = maybe(ours, part, y);
    return z.sum() + h.square().sum();
  });
}

TEST(Recompute, NothingPassedAllCaptured) {
  expect_same([](bool ours, const std::vector<Tensor>& in) {
    const Tensor h = in[0].matmul(in[1]);
    return maybe(ours, [h, b = in[2]] { return (h * b).exp(); }).sum();
  });
}

TEST(Recompute, ACapturedTensorThatIsReturned) {
  expect_same([](bool ours, const std::vector<Tensor>& in) {
    const Tensor h = in[0] * 3;
    const auto [y, same] = maybe(
        ours, [h](const Tensor& w) { return std::pair(h.matmul(w), h); }, in[1]);
    return y.sum() + (same * 2).sum();
  });
}

TEST(Recompute, InsideOfAnother) {
  expect_same([](bool ours, const std::vector<Tensor>& in) {
    const Tensor before = in[1].exp();
    const auto outer = [ours, before, b = in[2]](const Tensor& x) {
      const Tensor h = x.tanh();
      const auto inner = [h, before, b](const Tensor& z) { return (z + h).matmul(before) * b; };
      return maybe(ours, inner, maybe(ours, inner, h));
    };
    return maybe(ours, outer, in[0]).sum();
  });
}

TEST(Recompute, RunningStatisticsAreUpdatedOnce) {
  std::vector<Tensor> means, variances;
  for (const bool with_checkpoint : {false, true}) {
    torch::nn::BatchNorm1d norm(4);
    for (int i = 0; i < 3; ++i) {
      const Tensor y = maybe(
          with_checkpoint, [norm](const Tensor& x) mutable { return norm(x); }, leaf({6, 4}, i));
      y.square().sum().backward();
    }
    means.push_back(norm->running_mean);
    variances.push_back(norm->running_var);
  }
  EXPECT_TRUE(means[0].equal(means[1]));
  EXPECT_TRUE(variances[0].equal(variances[1]));
}

TEST(Recompute, DropsWhatWasComputed) {
  const Tensor x = leaf({2}, 1);
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> made;
  const Tensor y = checkpoint(
      [&made](const Tensor& in) {
        const Tensor inner = in.exp();  // exp keeps its result for backward
        made.emplace_back(inner.getIntrusivePtr());
        return inner.exp();
      },
      x);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_TRUE(made[0].expired());
  y.sum().backward();
  EXPECT_EQ(made.size(), 2u);
}

TEST(Recompute, EachGradientArrivesOnce) {
  torch::nn::Linear shared(4, 4);
  int times = 0;
  shared->weight.register_hook([&times](const Tensor&) { ++times; });
  const auto part = [shared](const Tensor& x) mutable { return torch::tanh(shared->forward(x)); };
  checkpoint(part, checkpoint(part, torch::ones({2, 4}))).sum().backward();
  EXPECT_EQ(times, 1);
}

// Without the cache the gradients of a weight are added up as floats, not as bfloat16.
TEST(Recompute, UnderAutocast) {
  const auto loss = [](bool ours, const std::vector<Tensor>& in) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    const Tensor outside = in[0].matmul(in[1]);  // leaves a cast of in[1] in autocast's cache
    const Tensor y = maybe(
        ours, [w = in[1]](const Tensor& x) { return x.matmul(w).matmul(w); }, in[0]);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    return (y + outside).to(torch::kFloat).sum();
  };
  expect_same(loss, 0.05);
}

TEST(Recompute, SaysWhenTheSecondCallUsesOtherTensors) {
  std::vector<torch::nn::Linear> blocks{torch::nn::Linear(4, 4), torch::nn::Linear(4, 4)};
  Tensor x = torch::ones({2, 4});
  size_t i = 0;
  for (; i < 2; ++i) x = checkpoint([&](const Tensor& in) { return blocks[std::min<size_t>(i, 1)]->forward(in); }, x);
  EXPECT_THAT(refusal([&] { x.sum().backward(); }), HasSubstr("capture by value"));
}

TEST(Recompute, TwiceNeedsTheGraphKept) {
  const Tensor x = leaf({2}, 1);
  const Tensor y = checkpoint([](const Tensor& in) { return in.exp(); }, x).sum();
  y.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  y.backward();
  EXPECT_TRUE(x.grad().equal(once * 2));
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST(Recompute, RefusesASecondDerivative) {
  const Tensor x = leaf({2}, 1);
  const Tensor y = checkpoint([](const Tensor& in) { return in.exp(); }, x).sum();
  EXPECT_THAT(refusal([&] { torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true); }),
              HasSubstr("create_graph"));
}

TEST(Recompute, GivesAutogradGrad) {
  const Tensor x = leaf({2}, 1), w = leaf({2}, 2);
  const Tensor y = checkpoint([w](const Tensor& in) { return in * w; }, x).sum();
  const auto gradients = torch::autograd::grad({y}, {x, w});
  EXPECT_TRUE(gradients[0].equal(w.detach()) && gradients[1].equal(x.detach()));
  EXPECT_FALSE(w.grad().defined());
}

TEST(Recompute, AnInputThatWasChangedIsAnError) {
  const Tensor x = leaf({2}, 1) * 1;
  const Tensor y = checkpoint([](const Tensor& in) { return in.exp(); }, x).sum();
  x.add_(1);
  EXPECT_THROW(y.backward(), c10::Error);
}

}  // namespace
}  // namespace trireme
