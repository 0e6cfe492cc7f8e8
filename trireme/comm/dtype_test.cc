#include "trireme/comm/dtype.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

TEST(Elements, KnownTypesAreThemselves) {
  const std::pair<torch::ScalarType, DType> known[] = {{torch::kFloat, DType::f32}, {torch::kDouble, DType::f64},
                                                       {torch::kHalf, DType::f16},  {torch::kBFloat16, DType::bf16},
                                                       {torch::kChar, DType::i8},   {torch::kByte, DType::u8},
                                                       {torch::kShort, DType::i16}, {torch::kInt, DType::i32},
                                                       {torch::kLong, DType::i64},  {torch::kBool, DType::boolean}};
  for (const auto& [type, dtype] : known) {
    const torch::Tensor x = torch::ones({2, 3}, type);
    for (const Elements& elements : {for_reduction(x, ReduceOp::sum), for_moving(x)}) {
      EXPECT_EQ(elements.data, x.data_ptr());
      EXPECT_EQ(elements.count(), 6u);
      EXPECT_EQ(elements.dtype, dtype) << type;
    }
    EXPECT_EQ(moving_factor(type), 1u);
    EXPECT_EQ(to_torch(dtype), type);
    EXPECT_EQ(size_of(dtype), x.element_size());
  }
}

TEST(Elements, HaveTheShapeOfTheTensor) {
  const torch::Tensor x = torch::ones({2, 3});
  EXPECT_EQ(to_string(for_reduction(x, ReduceOp::sum).dims), "[2, 3]");
  EXPECT_EQ(to_string(for_reduction(x.to(torch::kComplexFloat), ReduceOp::sum).dims), "[2, 3, 2]");
  EXPECT_EQ(to_string(for_moving(x.t()).dims), "[3, 2]");
}

TEST(ReduceOps, SurviveTheWayToC10dAndBack) {
  for (const ReduceOp op : kReduceOps) EXPECT_EQ(from_c10d(to_c10d(op)), op);
  EXPECT_EQ(to_c10d(ReduceOp::avg).op_, c10d::ReduceOp::AVG);
  EXPECT_THROW(from_c10d(c10d::ReduceOp::BXOR), UsageError);
}

TEST(Elements, ComplexNumbersAreAddedAsPairs) {
  const torch::Tensor x = torch::ones({5}, torch::kComplexDouble);
  const Elements elements = for_reduction(x, ReduceOp::avg);
  EXPECT_EQ(elements.count(), 10u);
  EXPECT_EQ(elements.dtype, DType::f64);
  for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::max})
    EXPECT_THROW(for_reduction(x, op), UsageError);
}

TEST(Elements, WhatEnginesDoNotKnowIsMovedAsBytes) {
  const torch::Tensor x = torch::ones({5}, torch::kComplexFloat);
  EXPECT_EQ(for_moving(x).count(), 40u);
  EXPECT_EQ(for_moving(x).dtype, DType::u8);
  EXPECT_EQ(moving_factor(torch::kComplexFloat), 8u);
  const torch::Tensor tiny = torch::ones({5}).to(torch::kFloat8_e4m3fn);
  EXPECT_EQ(for_moving(tiny).count(), 5u);
  EXPECT_THROW(for_reduction(tiny, ReduceOp::sum), UsageError);
}

TEST(Elements, OnlyFloatsHaveAnAverage) {
  EXPECT_THROW(for_reduction(torch::ones({2}, torch::kInt), ReduceOp::avg), UsageError);
  EXPECT_THROW(for_reduction(torch::ones({2}, torch::kBool), ReduceOp::avg), UsageError);
  EXPECT_NO_THROW(for_reduction(torch::ones({2}, torch::kBFloat16), ReduceOp::avg));
}

}  // namespace
}  // namespace trireme::comm
