// The two halves of a backward give the gradients of one.
#include "trireme/parallel/pipeline/split_backward.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/parallel/recompute.h"

namespace trireme::parallel {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Model = std::function<Tensors(const Tensors&)>;

// Both ways on the same model, with the same input and the same gradients of the outputs.
void expect_equal_gradients(const Model& model, const Tensors& weights, const Tensors& inputs) {
  const auto leaves_of = [&] {
    Tensors leaves;
    for (const Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
    return leaves;
  };
  const auto roots_of = [](const Tensors& outputs) {
    Tensors gradients;
    for (const Tensor& output : outputs) gradients.push_back(torch::cos(output.detach()));
    return gradients;
  };
  Tensors whole = leaves_of();
  Tensors outputs = model(whole);
  torch::autograd::backward(outputs, roots_of(outputs));
  Tensors expected;
  for (const Tensor& weight : weights) {
    expected.push_back(weight.grad().clone());
    weight.mutable_grad() = Tensor();
  }

  Tensors leaves = leaves_of();
  outputs = model(leaves);
  SplitBackward backward(outputs, roots_of(outputs), leaves);
  const Tensors of_inputs = backward.input_gradients();
  for (const Tensor& weight : weights)
    EXPECT_FALSE(weight.grad().defined()) << "the first half gives weights gradients";
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_FALSE(leaves[i].grad().defined());
    ASSERT_EQ(of_inputs[i].defined(), whole[i].grad().defined());
    if (of_inputs[i].defined()) EXPECT_TRUE(torch::allclose(of_inputs[i], whole[i].grad(), 1e-12, 1e-12));
  }
  backward.weight_gradients();
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_TRUE(weights[i].grad().defined()) << "weight " << i;
    EXPECT_TRUE(torch::allclose(weights[i].grad(), expected[i], 1e-12, 1e-12)) << "weight " << i;
  }
}

Tensor weight(at::IntArrayRef sizes) {
  return torch::randn(sizes, torch::kDouble).requires_grad_();
}

struct Fixture {
  Tensor a = weight({5, 4}), b = weight({5}), c = weight({5, 5}), d = weight({5});
  Tensor x = torch::randn({3, 4}, torch::kDouble);
};

TEST(SplitBackward, LayersOneAfterTheOther) {
  const Fixture f;
  expect_equal_gradients(
      [&](const Tensors& x) -> Tensors {
        return {torch::layer_norm(torch::linear(torch::tanh(torch::linear(x[0], f.a, f.b)), f.c), {5}, f.d, f.b)};
      },
      {f.a, f.b, f.c, f.d}, {f.x});
}

TEST(SplitBackward, AWeightThatIsUsedTwice) {
  const Fixture f;
  expect_equal_gradients(
      [&](const Tensors& x) -> Tensors {
        const Tensor scaled = f.c * 2;  // one node off the way, reached from two on it
        return {torch::linear(torch::tanh(torch::linear(torch::linear(x[0], f.a), scaled)), scaled) + f.c.sum()};
      },
      {f.a, f.c}, {f.x});
}

TEST(SplitBackward, SeveralInputsAndOutputs) {
  const Fixture f;
  expect_equal_gradients(
      [&](const Tensors& x) -> Tensors {
        const Tensor y = torch::linear(x[0], f.a);
        return {y * x[1], f.d.exp(), x[1], y.sum(1)};
      },
      {f.a, f.d}, {f.x, torch::randn({5}, torch::kDouble)});
}

TEST(SplitBackward, WithoutInputsAllIsLeftToTheSecondHalf) {
  const Fixture f;
  expect_equal_gradients([&](const Tensors&) -> Tensors { return {torch::linear(f.x, f.a, f.b).tanh()}; }, {f.a, f.b},
                         {});
}

TEST(SplitBackward, RecomputedParts) {
  const Fixture f;
  expect_equal_gradients(
      [&](const Tensors& x) -> Tensors {
        const auto part = [&](const Tensor& y) { return torch::linear(y, f.a, f.b).tanh(); };
        return {torch::linear(checkpoint(part, x[0]), f.c)};
      },
      {f.a, f.b, f.c}, {f.x});
}

}  // namespace
}  // namespace trireme::parallel
