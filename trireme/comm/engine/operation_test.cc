#include "trireme/comm/engine/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "trireme/comm/engine/shm/exchange.h"
#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;

const Operation kReduce{.kind = Kind::all_reduce, .dtype = DType::f32, .dims = 1024, .sequence = 42};

TEST(Operation, IsDescribedWithTypeSizeAndNumber) {
  EXPECT_EQ(describe(kReduce), "all_reduce #42 float[1024] sum");
  EXPECT_EQ(describe({.kind = Kind::barrier, .sequence = 1}), "barrier #1");
  EXPECT_EQ(describe({.kind = Kind::broadcast, .dtype = DType::i64, .root = 2, .dims = 5, .sequence = 7}),
            "broadcast #7 int64[5] from rank 2");
  EXPECT_EQ(describe({.kind = Kind::reduce, .dtype = DType::f32, .op = ReduceOp::avg, .root = 1, .dims = 5}),
            "reduce float[5] avg to rank 1");
  EXPECT_EQ(describe({.kind = Kind::gather, .root = 1, .dims = 5, .parts = 0xabc}),
            "gather uint8[5] in parts (digest 00000abc) to rank 1");
  EXPECT_EQ(describe({.kind = Kind::scatter, .root = 1, .dims = 5, .parts = 0xabc}),
            "scatter uint8[5] in parts (digest 00000abc) from rank 1");
  EXPECT_EQ(describe({.kind = Kind::reduce_scatter, .op = ReduceOp::max, .dims = 5, .parts = 0xabc}),
            "reduce_scatter uint8[5] max in parts (digest 00000abc)");
  EXPECT_EQ(describe({.kind = Kind::all_to_all, .dtype = DType::bf16, .sequence = 3}), "all_to_all #3 bfloat16");
  EXPECT_EQ(describe({.kind = Kind::message, .root = 4, .to = 2, .dims = 5}), "message uint8[5] from rank 4 to rank 2");
}

TEST(Operation, RanksAreCalledByTheirNames) {
  const std::vector<int> names = {4, 7};
  EXPECT_EQ(describe({.kind = Kind::broadcast, .root = 1, .dims = 5, .sequence = 7}, names),
            "broadcast #7 uint8[5] from rank 7");
}

Dims shape(std::vector<int64_t> sizes) {
  return Dims(sizes);
}

TEST(Dims, TellShapesApart) {
  EXPECT_EQ(shape({2, 3}).elements, 6u);
  EXPECT_EQ(shape({2, 3}), shape({2, 3}));
  EXPECT_NE(shape({2, 3}), shape({3, 2}));
  EXPECT_NE(shape({2, 3}), shape({6}));
  EXPECT_NE(shape({2, 3}), shape({1, 2, 3}));
  EXPECT_NE(shape({0, 3}), shape({3, 0}));
  EXPECT_NE(shape({1, 2, 1, 1, 3, 1}), shape({1, 2, 1, 1, 1, 3})) << "beyond those that are shown";
  EXPECT_EQ(shape({6}), Dims(6));
  EXPECT_EQ(shape({}), Dims(1)) << "a scalar is one element";
}

TEST(Dims, AreShown) {
  EXPECT_EQ(to_string(shape({2, 3})), "[2, 3]");
  EXPECT_EQ(to_string(Dims(1024)), "[1024]");
  EXPECT_EQ(to_string(shape({1, 2, 3, 4, 5})), "[1, 2, 3, 4, ...]");
}

TEST(Operation, AgreementIsSilent) {
  EXPECT_EQ(find_mismatch(std::vector<Operation>{kReduce}), std::nullopt);
  EXPECT_EQ(find_mismatch(std::vector<Operation>{kReduce, kReduce, kReduce}), std::nullopt);
}

TEST(Operation, EveryFieldIsCompared) {
  std::vector<Operation> others(7, kReduce);
  others[0].kind = Kind::broadcast;
  others[1].dtype = DType::f64;
  others[2].op = ReduceOp::max;
  others[3].root = 1;
  others[4].dims = 512;
  others[5].parts = 9;
  others[6].sequence = 41;
  for (const Operation& other : others)
    EXPECT_TRUE(find_mismatch(std::vector<Operation>{kReduce, kReduce, other}).has_value()) << describe(other);
}

TEST(Operation, AMismatchNamesBothSides) {
  Operation other = kReduce;
  other.dims = 512;
  EXPECT_THAT(find_mismatch(std::vector<Operation>{kReduce, kReduce, kReduce, other}).value(),
              HasSubstr("rank 0: all_reduce #42 float[1024] sum but rank 3: all_reduce #42 float[512] sum"));
}

TEST(Operation, AMismatchOfMessagesNamesTheEndsAsTheGroupDoes) {
  const std::vector<Operation> both = {{.kind = Kind::message, .dtype = DType::f32, .to = 1, .dims = 10, .sequence = 3},
                                       {.kind = Kind::message, .dtype = DType::i32, .to = 1, .dims = 8, .sequence = 3}};
  const std::vector<int> names = {5, 2};
  EXPECT_THAT(find_mismatch(both, names).value(),
              HasSubstr("message #3 from rank 5 to rank 2: rank 5 sends float[10] but rank 2 expects int32[8]"));
}

TEST(Operation, TheDigestSeesOrderAndLength) {
  const auto of = [](std::vector<uint64_t> sizes) { return digest(sizes); };
  EXPECT_EQ(of({1, 2, 3}), of({1, 2, 3}));
  EXPECT_NE(of({1, 2, 3}), of({2, 1, 3}));
  EXPECT_NE(of({0}), of({0, 0}));
}

TEST(Slices, CoverEverythingOnceInOrder) {
  for (const int ranks : {1, 2, 3, 4, 7, 8})
    for (const size_t elements : {0, 1, 63, 64, 65, 127, 128, 129, 1000, 4096, 99999}) {
      size_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const shm::Range slice = shm::slice_of(elements, ranks, rank);
        EXPECT_EQ(slice.begin, next) << elements << " over " << ranks;
        EXPECT_LE(slice.begin, slice.end);
        EXPECT_LE(slice.size() * 8, (shm::Shape{ranks, elements * 8}.out_bytes())) << elements << " over " << ranks;
        next = slice.end;
      }
      EXPECT_EQ(next, elements);
    }
}

TEST(Spin, OnlyWithAProcessorForEachRank) {
  EXPECT_GT(shm::spin_budget(2, 2), 0);
  EXPECT_EQ(shm::spin_budget(3, 2), 0);
}

TEST(DTypes, AverageNeedsAFloatingType) {
  EXPECT_NO_THROW(check_reducible(DType::bf16, ReduceOp::avg));
  EXPECT_NO_THROW(check_reducible(DType::i32, ReduceOp::sum));
  EXPECT_THROW(check_reducible(DType::i32, ReduceOp::avg), UsageError);
  EXPECT_THROW(check_reducible(DType::boolean, ReduceOp::avg), UsageError);
}

}  // namespace
}  // namespace trireme::comm
