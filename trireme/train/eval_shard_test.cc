#include "trireme/train/eval_shard.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Numbers : public data::Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  using Dataset::get;
  data::Sample get(int64_t index) const override { return {torch::full({1}, index), torch::full({1}, index)}; }

 private:
  int64_t size_;
};

std::vector<int64_t> numbers(const EvalShard& shard) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < shard.size(); ++i) result.push_back(shard.get(i).data.item<int64_t>());
  return result;
}

EvalShard shard(int64_t samples, int64_t batch_size, RankInfo me, std::optional<int64_t> limit = {}) {
  return {std::make_shared<Numbers>(samples), batch_size, me, limit};
}

TEST(EvalShard, DealsBatchesOneByOne) {
  EXPECT_THAT(numbers(shard(10, 3, {0, 2})), ElementsAre(0, 1, 2, 6, 7, 8));
  EXPECT_THAT(numbers(shard(10, 3, {1, 2})), ElementsAre(3, 4, 5, 9));
}

TEST(EvalShard, MayBeNothing) {
  EXPECT_THAT(numbers(shard(2, 3, {1, 2})), ElementsAre());
  EXPECT_EQ(shard(2, 3, {1, 2}).steps(), 0);
}

TEST(EvalShard, EverySampleIsInExactlyOne) {
  for (int64_t samples = 1; samples < 14; ++samples)
    for (int64_t batch_size = 1; batch_size < 6; ++batch_size)
      for (int ranks = 1; ranks < 5; ++ranks) {
        std::vector<int64_t> seen;
        for (int rank = 0; rank < ranks; ++rank)
          for (const int64_t number : numbers(shard(samples, batch_size, {rank, ranks}))) seen.push_back(number);
        std::sort(seen.begin(), seen.end());
        ASSERT_EQ(seen.size(), static_cast<size_t>(samples));
        for (int64_t i = 0; i < samples; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
      }
}

TEST(EvalShard, PutsRowsBackInOrder) {
  std::vector<torch::Tensor> by_rank;
  for (int rank = 0; rank < 3; ++rank) {
    const EvalShard one = shard(8, 2, {rank, 3});
    std::vector<int64_t> indices(static_cast<size_t>(one.size()));
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
    by_rank.push_back(one.batch(indices).data);
  }
  EXPECT_TRUE(shard(8, 2, {0, 3}).in_order(by_rank).squeeze(1).equal(torch::arange(8)));
}

TEST(EvalShard, StopsAtALimitOfBatches) {
  EXPECT_THAT(numbers(shard(10, 2, {1, 2}, 1)), ElementsAre(2, 3));
  EXPECT_EQ(shard(10, 2, {1, 2}, 1).samples(), 4);
  EXPECT_EQ(shard(10, 2, {1, 2}, 100).samples(), 10);
}

TEST(EvalShard, RefusesNonsense) {
  EXPECT_THAT([] { shard(0, 1, {}); }, ThrowsMessage<UsageError>(HasSubstr("empty")));
  EXPECT_THAT([] { shard(1, 0, {}); }, ThrowsMessage<UsageError>(HasSubstr("batch_size is 0")));
  EXPECT_THAT([] { EvalShard(nullptr, 1, {}); }, ThrowsMessage<UsageError>(HasSubstr("null")));
}

}  // namespace
}  // namespace trireme::train
