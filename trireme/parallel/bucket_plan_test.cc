#include "trireme/parallel/bucket_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/comm/collectives.h"
#include "trireme/parallel/test_ranks.h"

namespace trireme::parallel {
namespace {

using ::testing::ElementsAre;
using testing::run_ranks;

constexpr int64_t kFloatsOfAMegabyte = 1024 * 1024 / 4;

std::vector<ModelParameter> parameters_of(const std::vector<int64_t>& sizes) {
  std::vector<ModelParameter> parameters;
  for (const int64_t size : sizes)
    parameters.push_back({.name = fmt::format("p{}", parameters.size()),
                          .tensor = torch::zeros({size}).requires_grad_(),
                          .accumulator = nullptr});
  return parameters;
}

// Of four parameters rank 0 has used p2, then p0; rank 1 p1, then p0. Nobody has used p3.
SeenGradients seen_by(int rank) {
  if (rank == 0) return {.order = {2, 0}, .used = {1, 0, 1, 0}};
  if (rank == 1) return {.order = {1, 0}, .used = {1, 1, 0, 0}};
  return {.order = {}, .used = {0, 0, 0, 0}};
}

TEST(UsedByAny, IsTheUnionOfTheRanks) {
  run_ranks(2, [](const Group& group) {
    EXPECT_THAT(used_by_any(seen_by(group.rank()).used, group), ElementsAre(1, 1, 1, 0));
  });
}

TEST(AgreeOnBuckets, TakesTheOrderOfTheRootAndThenWhatOnlyOthersUse) {
  run_ranks(3, [](const Group& group) {
    const std::vector<ModelParameter> parameters = parameters_of({1, 1, 1, 1});
    const auto plan_of = [&](int root) {
      return agree_on_buckets(seen_by(group.rank()), parameters, {.root = root, .group = group, .options = {}});
    };
    const BucketPlan first = plan_of(0);
    EXPECT_THAT(first.in_use, ElementsAre(2, 0, 1));
    EXPECT_THAT(first.place, ElementsAre(1, 2, 0, -1));
    EXPECT_THAT(first.has_used, ElementsAre(1, 1, 1, 0));
    EXPECT_THAT(first.names(parameters), ElementsAre("p2", "p0", "p1"));
    EXPECT_TRUE(first.tensors(parameters)[0].is_same(parameters[2].tensor));
    EXPECT_THAT(plan_of(1).in_use, ElementsAre(1, 0, 2));
    EXPECT_THAT(plan_of(2).in_use, ElementsAre(0, 1, 2)) << "a root that takes no part has no order";
  });
}

TEST(AgreeOnBuckets, KeepsAPlaceForWhatNobodyHasUsedYet) {
  run_ranks(2, [](const Group& group) {
    const BucketPlan plan = agree_on_buckets(seen_by(group.rank()), parameters_of({1, 1, 1, 1}),
                                             {.root = 0, .group = group, .options = {.find_unused_parameters = true}});
    EXPECT_THAT(plan.in_use, ElementsAre(2, 0, 1, 3));
    EXPECT_THAT(plan.has_used, ElementsAre(1, 1, 1, 0));
  });
}

TEST(AgreeOnBuckets, CutsBucketsBySize) {
  run_ranks(1, [](const Group& group) {
    const BucketPlan plan = agree_on_buckets(
        {.order = {3, 2, 1, 0}, .used = {1, 1, 1, 1}}, parameters_of(std::vector<int64_t>(4, kFloatsOfAMegabyte)),
        {.root = 0, .group = group, .options = {.comm_buffer_size = 2, .last_comm_buffer_size = 1}});
    EXPECT_THAT(plan.buckets, ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
  });
}

// p0 has a gradient on both ranks, p1 on rank 1 alone, p2 on none.
TEST(AverageNow, AveragesWhatAnyRankHas) {
  run_ranks(2, [](const Group& group) {
    const std::vector<ModelParameter> parameters = parameters_of({3, 2, 1});
    const bool second = group.rank() == 1;
    parameters[0].tensor.mutable_grad() = torch::full({3}, second ? 6.0 : 2.0);
    if (second) parameters[1].tensor.mutable_grad() = torch::ones({2});
    const torch::Tensor kept = parameters[0].tensor.grad();
    const SeenGradients mine{.order = {0}, .used = {1, static_cast<uint8_t>(second), 0}};
    const BucketPlan plan =
        agree_on_buckets(mine, parameters, {.root = 0, .group = group, .options = {.find_unused_parameters = true}});
    average_now(plan, parameters, average_gradients(), group);
    EXPECT_TRUE(kept.equal(torch::full({3}, 4.0))) << "in the tensor that was there";
    EXPECT_TRUE(parameters[1].tensor.grad().equal(torch::full({2}, 0.5))) << "zeros from the rank that has none";
    EXPECT_FALSE(parameters[2].tensor.grad().defined());
  });
}

TEST(AverageNow, CallsTheHookForEachBucketInOrder) {
  run_ranks(1, [](const Group& group) {
    const std::vector<ModelParameter> parameters = parameters_of({kFloatsOfAMegabyte, 4, 2});
    for (const ModelParameter& parameter : parameters)
      parameter.tensor.mutable_grad() = torch::ones_like(parameter.tensor);
    const BucketPlan plan = agree_on_buckets({.order = {0, 1, 2}, .used = {1, 1, 1}}, parameters,
                                             {.root = 0, .group = group, .options = {}});
    std::vector<int64_t> lengths;
    const GradientHook doubled = [&](const GradientBucket& bucket, const Group& ranks) {
      EXPECT_EQ(bucket.index, static_cast<int>(lengths.size()));
      lengths.push_back(bucket.flat.numel());
      bucket.flat.mul_(2);
      return all_reduce_async(bucket.flat, ReduceOp::avg, ranks);
    };
    average_now(plan, parameters, doubled, group);
    EXPECT_THAT(lengths, ElementsAre(kFloatsOfAMegabyte, 6));
    for (const ModelParameter& parameter : parameters)
      EXPECT_TRUE(parameter.tensor.grad().equal(torch::full_like(parameter.tensor, 2)));
  });
}

}  // namespace
}  // namespace trireme::parallel
