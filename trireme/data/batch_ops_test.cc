#include "trireme/data/batch_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "trireme/core/test_support.h"
#include "trireme/data/loader.h"
#include "trireme/data/synthetic.h"
#include "trireme/data/tensor_dataset.h"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kClasses = 4;

/// Four pictures; picture i is all i and has label i.
Batch plain_batch(int64_t size = 8) {
  const auto number = torch::arange(kClasses);
  return {number.to(torch::kFloat32).reshape({kClasses, 1, 1, 1}).expand({kClasses, 3, size, size}).contiguous(),
          number};
}

/// What the labels say the mean of each picture should be.
torch::Tensor expected_means(const torch::Tensor& soft) {
  return soft.matmul(torch::arange(kClasses).to(torch::kFloat32));
}

TEST(Mixup, BlendsPicturesAndLabelsAlike) {
  std::set<double> shares;
  for (uint64_t draw = 0; draw < 20; ++draw) {
    const Batch batch = Mixup{.alpha = 0.4, .class_num = kClasses}(plain_batch(), draw);
    EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{kClasses, kClasses}));
    EXPECT_TRUE(torch::allclose(batch.target.sum(1), torch::ones({kClasses})));
    EXPECT_TRUE(torch::allclose(batch.data.mean({1, 2, 3}), expected_means(batch.target), 1e-4, 1e-4));
    shares.insert(batch.target[0][0].item<double>());
  }
  EXPECT_GT(shares.size(), 10u);
}

TEST(Mixup, IsTheSameForTheSameDraw) {
  const Mixup mixup{.alpha = 1, .class_num = kClasses};
  const Batch original = plain_batch();
  EXPECT_TRUE(torch::equal(mixup(original, 5).data, mixup(original, 5).data));
  EXPECT_FALSE(torch::equal(mixup(original, 5).data, mixup(original, 6).data));
  EXPECT_TRUE(torch::equal(original.data, plain_batch().data));  // left alone
}

TEST(CutMix, CutsPicturesAndCountsTheArea) {
  std::set<int64_t> areas;
  for (uint64_t draw = 0; draw < 40; ++draw) {
    const Batch batch = CutMix{.alpha = 1, .class_num = kClasses}(plain_batch(), draw);
    EXPECT_TRUE(torch::allclose(batch.data.mean({1, 2, 3}), expected_means(batch.target), 1e-4, 1e-4));
    EXPECT_TRUE(torch::equal(batch.data, batch.data.round()));  // nothing is blended
    areas.insert((batch.data[0] != 0).sum().item<int64_t>());
  }
  EXPECT_GT(areas.size(), 8u);
  EXPECT_THAT(refusal([] { CutMix{}({torch::zeros({4, 2}), torch::arange(4)}, 1); }), HasSubstr("2 dimensions"));
}

TEST(CutMix, IsARectangle) {
  const Batch batch = CutMix{.alpha = 1, .class_num = kClasses}(plain_batch(), 3);
  for (int64_t i = 0; i < kClasses; ++i) {
    const auto changed = batch.data[i][0] != static_cast<float>(i);
    const auto rows = changed.any(1).sum().item<int64_t>(), columns = changed.any(0).sum().item<int64_t>();
    EXPECT_EQ(changed.sum().item<int64_t>(), rows * columns);
    EXPECT_TRUE(torch::equal(batch.data[i][0], batch.data[i][2]));
  }
}

TEST(BatchOps, MayGiveLabelsAndShareInstead) {
  const Batch batch = Mixup{.alpha = 1}(plain_batch(), 9);
  const MixedLabels labels = mixed_labels(batch.target);
  EXPECT_TRUE(torch::equal(labels.label, torch::arange(kClasses)));
  const auto means = labels.lam * labels.label + (1 - labels.lam) * labels.other;
  EXPECT_TRUE(torch::allclose(batch.data.mean({1, 2, 3}), means.to(torch::kFloat32), 1e-4, 1e-4));
  EXPECT_THAT(refusal([] { mixed_labels(torch::arange(3)); }), HasSubstr("1 dimensions"));
}

TEST(BatchOps, RefuseNonsense) {
  EXPECT_THAT(refusal([] { Mixup{.alpha = 0}(plain_batch(), 1); }), HasSubstr("Mixup: alpha is 0"));
  EXPECT_THAT(refusal([] { CutMix{.alpha = -1}(plain_batch(), 1); }), HasSubstr("CutMix: alpha is -1"));
  EXPECT_THAT(refusal([] { Mixup{.class_num = 3}(plain_batch(), 1); }),
              HasSubstr("labels are from 0 to 3, but with class_num 3 they must be from 0 to 2"));
  EXPECT_THAT(refusal([] { OpSampler({{Mixup{}, 0.7}, {CutMix{}, 0.7}}, 0); }), HasSubstr("1.4 together"));
  EXPECT_THAT(refusal([] { OpSampler({{Mixup{}, -0.5}}, 0); }), HasSubstr("is -0.5"));
}

TEST(OpSampler, ChoosesByProbability) {
  int ones = 0, twos = 0, none = 0;
  const auto give = [](float value) {
    return [value](const Batch& batch, uint64_t) { return Batch{batch.data * 0 + value, batch.target}; };
  };
  const OpSampler sampler({{give(10), 0.3}, {give(20), 0.5}}, kClasses);
  for (uint64_t draw = 0; draw < 1000; ++draw) {
    const Batch batch = sampler(plain_batch(1), draw);
    const auto value = batch.data[3].max().item<float>();
    ones += value == 10;
    twos += value == 20;
    none += value == 3;
    EXPECT_TRUE(value != 3 || torch::equal(batch.target, torch::eye(kClasses)));  // soft all the same
  }
  EXPECT_NEAR(ones, 300, 60);
  EXPECT_NEAR(twos, 500, 60);
  EXPECT_NEAR(none, 200, 60);
}

std::vector<torch::Tensor> mixed_batches(int workers, RankInfo me) {
  const Synthetic noise({.samples = 40, .shape = {3, 4, 4}, .class_num = kClasses});
  const OpSampler either(
      {{Mixup{.alpha = 0.2, .class_num = kClasses}, 0.5}, {CutMix{.alpha = 1, .class_num = kClasses}, 0.5}}, kClasses);
  Loader loader(BatchMap(noise, either), {.batch_size = 5, .shuffle = true, .workers = workers}, me);
  std::vector<torch::Tensor> all;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& [x, y] : loader) {
      EXPECT_EQ(y.size(1), kClasses);
      all.push_back(x);
    }
  return all;
}

TEST(BatchMap, DoesNotDependOnTheWorkers) {
  const auto expected = mixed_batches(0, {0, 2});
  for (const int workers : {1, 3}) {
    const auto batches = mixed_batches(workers, {0, 2});
    ASSERT_EQ(batches.size(), expected.size());
    for (size_t i = 0; i < batches.size(); ++i) EXPECT_TRUE(torch::equal(batches[i], expected[i]));
  }
}

TEST(BatchMap, OfOneSampleIsTheSample) {
  const BatchMap map(TensorDataset(torch::ones({3, 1, 2, 2}), torch::arange(3)), Mixup{.class_num = 3});
  EXPECT_EQ(map.size(), 3);
  EXPECT_TRUE(torch::allclose(map.get(1).data, torch::ones({1, 2, 2})));
  EXPECT_TRUE(torch::allclose(map.get(1).target, torch::tensor({0.f, 1.f, 0.f})));
}

}  // namespace
}  // namespace trireme::data
