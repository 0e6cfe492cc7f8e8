#include "trireme/train/operators_of.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

namespace trireme::train {
namespace {

/// Of a loss that is weighted by `weight`.
uint64_t weighted(const torch::Tensor& weight) {
  const torch::Tensor x = torch::ones({3});
  return operators_of([&] { x.sum() * weight; });
}

TEST(OperatorsOf, ANumberInATensorCountsByItsValue) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kLong, torch::kHalf}) {
    EXPECT_EQ(weighted(torch::tensor(2, type)), weighted(torch::tensor(2, type))) << type;
    EXPECT_NE(weighted(torch::tensor(2, type)), weighted(torch::tensor(3, type))) << type;
  }
}

TEST(OperatorsOf, ANumberInAListOfTensorsCounts) {
  const auto stacked = [](double number) {
    const std::vector<torch::Tensor> parts = {torch::tensor(1.0), torch::tensor(number)};
    return operators_of([&] { torch::stack(parts); });
  };
  EXPECT_EQ(stacked(2), stacked(2));
  EXPECT_NE(stacked(2), stacked(3));
}

TEST(OperatorsOf, TheValuesOfOtherTensorsDoNotCount) {
  EXPECT_EQ(weighted(torch::full({3}, 2.0)), weighted(torch::full({3}, 3.0)));
}

// As sum() does it with new memory.
TEST(OperatorsOf, WhatATensorHeldBeforeItIsFilledDoesNotCount) {
  const auto filled = [](double before) {
    torch::Tensor number = torch::tensor(before);
    return operators_of([&] { number.as_strided({1}, {0}).zero_(); });
  };
  EXPECT_EQ(filled(2), filled(3));
}

TEST(OperatorsOf, OperatorsAndTheirNumbersCount) {
  const torch::Tensor x = torch::ones({3});
  EXPECT_NE(operators_of([&] { x.relu(); }), operators_of([&] { x.sigmoid(); }));
  EXPECT_NE(operators_of([&] { x * 2.0; }), operators_of([&] { x * 3.0; }));
  EXPECT_NE(operators_of([&] { x.view({3, 1}); }), operators_of([&] { x.view({1, 3}); }));
  EXPECT_EQ(operators_of([&] { x * 2.0; }), operators_of([&] { x * 2.0; }));
}

}  // namespace
}  // namespace trireme::train
