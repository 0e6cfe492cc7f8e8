#include "trireme/comm/engine/shm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "trireme/comm/engine/shm/half.h"

namespace trireme::comm::shm {
namespace {

double half_by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

bool is_nan_half(uint16_t bits) {
  return (bits & 0x7fff) > 0x7c00;
}

TEST(Half, WidensEveryValueExactly) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = widen_f16(static_cast<uint16_t>(bits));
    if (is_nan_half(static_cast<uint16_t>(bits))) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
    } else {
      EXPECT_EQ(wide, half_by_definition(static_cast<uint16_t>(bits))) << bits;
    }
  }
}

TEST(Half, NarrowsEveryValueBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!is_nan_half(half)) {
      EXPECT_EQ(narrow_f16(widen_f16(half)), half);
    }
    if ((half & 0x7fff) <= 0x7f80) {
      EXPECT_EQ(narrow_bf16(widen_bf16(half)), half);
    }
  }
  EXPECT_TRUE(is_nan_half(narrow_f16(std::nanf(""))));
  EXPECT_TRUE(std::isnan(widen_bf16(narrow_bf16(std::nanf("")))));
}

// Between neighbours: just below the middle goes down, just above goes up, the middle to the even one.
TEST(Half, RoundsToNearestEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const float middle = (widen_f16(low) + widen_f16(high)) / 2;
    EXPECT_EQ(narrow_f16(middle), low & 1 ? high : low) << low;
    EXPECT_EQ(narrow_f16(std::nextafterf(middle, 0)), low);
    EXPECT_EQ(narrow_f16(std::nextafterf(middle, 1e9f)), high);
  }
  EXPECT_EQ(narrow_f16(65519.0f), 0x7bff);
  EXPECT_EQ(narrow_f16(65520.0f), 0x7c00) << "half way to the next is infinity";
  EXPECT_EQ(narrow_f16(-1e30f), 0xfc00);
  EXPECT_EQ(narrow_f16(1e-30f), 0);
}

TEST(BFloat, RoundsToNearestEven) {
  for (uint32_t low = 0x0080; low < 0x7f7f; ++low) {
    const auto at = [](uint32_t bits) { return std::bit_cast<float>(bits); };
    EXPECT_EQ(narrow_bf16(at((low << 16) + 0x7fff)), low);
    EXPECT_EQ(narrow_bf16(at((low << 16) + 0x8000)), low & 1 ? low + 1 : low);
    EXPECT_EQ(narrow_bf16(at((low << 16) + 0x8001)), low + 1);
  }
}

template <typename T>
std::vector<T> joined(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& contributions) {
  std::vector<const std::byte*> sources;
  for (const auto& values : contributions) sources.push_back(reinterpret_cast<const std::byte*>(values.data()));
  std::vector<T> out(contributions[0].size());
  reduce(dtype, op, sources, out.size(), reinterpret_cast<std::byte*>(out.data()));
  return out;
}

TEST(Reduce, FloatsAreAddedInTheOrderOfTheSources) {
  EXPECT_EQ(joined<float>(DType::f32, ReduceOp::sum, {{1e8f}, {1.0f}, {-1e8f}})[0], (1e8f + 1.0f) + -1e8f);
  EXPECT_EQ(joined<float>(DType::f32, ReduceOp::sum, {{1e8f}, {-1e8f}, {1.0f}})[0], 1.0f);
}

TEST(Reduce, SixteenBitsAreRoundedOnce) {
  const uint16_t one = narrow_bf16(1.0f), small = narrow_bf16(1.0f / 256);
  // Rounded after each addition, both halves of the last place would be lost.
  EXPECT_EQ(widen_bf16(joined<uint16_t>(DType::bf16, ReduceOp::sum, {{one}, {small}, {small}})[0]), 1.0f + 2.0f / 256);
  const uint16_t half_one = narrow_f16(1.0f), half_small = narrow_f16(1.0f / 2048);
  EXPECT_EQ(widen_f16(joined<uint16_t>(DType::f16, ReduceOp::sum, {{half_one}, {half_small}, {half_small}})[0]),
            1.0f + 2.0f / 2048);
}

TEST(Reduce, ANanStaysWhereverItIs) {
  const float nan = std::nanf("");
  for (const ReduceOp op : kReduceOps)
    for (const auto& values : {std::vector<std::vector<float>>{{nan}, {1}, {2}}, {{1}, {nan}, {2}}, {{1}, {2}, {nan}}})
      EXPECT_TRUE(std::isnan(joined<float>(DType::f32, op, values)[0])) << to_string(op);
}

TEST(Reduce, IntegersWrapAround) {
  EXPECT_EQ(joined<int8_t>(DType::i8, ReduceOp::sum, {{127}, {1}})[0], -128);
  EXPECT_EQ(joined<int16_t>(DType::i16, ReduceOp::prod, {{-32768}, {-1}})[0], -32768);
  EXPECT_EQ(joined<int32_t>(DType::i32, ReduceOp::sum, {{INT32_MAX}, {1}})[0], INT32_MIN);
  EXPECT_EQ(joined<int64_t>(DType::i64, ReduceOp::prod, {{INT64_MAX}, {2}})[0], -2);
  EXPECT_EQ(joined<int8_t>(DType::i8, ReduceOp::min, {{-1}, {1}})[0], -1);
  EXPECT_EQ(joined<uint8_t>(DType::u8, ReduceOp::min, {{255}, {1}})[0], 1);
}

TEST(Reduce, BoolsAreZeroOrOne) {
  const std::vector<std::vector<uint8_t>> values = {{0, 1, 0, 7}, {0, 0, 1, 1}};
  EXPECT_EQ(joined(DType::boolean, ReduceOp::sum, values), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(joined(DType::boolean, ReduceOp::max, values), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(joined(DType::boolean, ReduceOp::prod, values), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(joined(DType::boolean, ReduceOp::min, values), (std::vector<uint8_t>{0, 0, 0, 1}));
}

TEST(Reduce, AverageDividesOnce) {
  EXPECT_EQ(joined<double>(DType::f64, ReduceOp::avg, {{1}, {2}, {4}})[0], 7.0 / 3);
}

TEST(Reduce, WorksInPlaceAtAnyAddress) {
  for (const size_t count : {0, 1, 1023, 1024, 1025, 5000}) {
    std::vector<std::byte> first(count * 4 + 1), second(count * 4 + 3);
    for (size_t i = 0; i < count; ++i) {
      const int32_t a = static_cast<int32_t>(i), b = 3;
      std::memcpy(&first[1 + i * 4], &a, 4);
      std::memcpy(&second[3 + i * 4], &b, 4);
    }
    const std::byte* sources[] = {first.data() + 1, second.data() + 3};
    reduce(DType::i32, ReduceOp::prod, sources, count, first.data() + 1);
    for (size_t i = 0; i < count; ++i) {
      int32_t result = 0;
      std::memcpy(&result, &first[1 + i * 4], 4);
      ASSERT_EQ(result, static_cast<int32_t>(i) * 3);
    }
  }
}

TEST(Reduce, NamesItsInstructionSet) {
  EXPECT_NE(std::string(reduce_instruction_set()), "");
}

}  // namespace
}  // namespace trireme::comm::shm
