#include "trireme/train/metrics.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

template <typename M>
std::vector<double> value(M metric, const torch::Tensor& output, const torch::Tensor& label) {
  metric.update(output, label);
  return metric.compute();
}

// Highest first: 2 1 0 | 0 1 2 | 1 2 0 | 0 2 1
const torch::Tensor kScores =
    torch::tensor({{0.1, 0.3, 0.6}, {0.7, 0.2, 0.1}, {0.0, 0.9, 0.1}, {0.5, 0.2, 0.3}}, torch::kFloat);
const torch::Tensor kClasses = torch::tensor({2, 1, 1, 1});  // at places 1, 2, 1, 3

TEST(Accuracy, CountsTheHighest) {
  EXPECT_THAT(value(metric::Accuracy(), kScores, kClasses), ElementsAre(0.5));
  EXPECT_THAT(metric::Accuracy().names(), ElementsAre("acc"));
}

TEST(Accuracy, CountsTheKHighest) {
  const metric::Accuracy metric({1, 2, 3});
  EXPECT_THAT(value(metric, kScores, kClasses), ElementsAre(0.5, 0.75, 1.0));
  EXPECT_THAT(metric.names(), ElementsAre("acc_top1", "acc_top2", "acc_top3"));
}

TEST(Accuracy, KAboveTheNumberOfClassesIsAll) {
  EXPECT_THAT(value(metric::Accuracy({5}), kScores, kClasses), ElementsAre(1.0));
}

TEST(Accuracy, TakesColumnsAndWeightsAsLabels) {
  EXPECT_THAT(value(metric::Accuracy(), kScores, kClasses.unsqueeze(1)), ElementsAre(0.5));
  const torch::Tensor weights = torch::one_hot(kClasses, 3).to(torch::kFloat) * 0.8 + 0.1;
  EXPECT_THAT(value(metric::Accuracy(), kScores, weights), ElementsAre(0.5));
}

TEST(Accuracy, AddsUpBatchesOfDifferentSizes) {
  metric::Accuracy metric;
  metric.update(kScores.narrow(0, 0, 1), kClasses.narrow(0, 0, 1));
  metric.update(kScores.narrow(0, 1, 3), kClasses.narrow(0, 1, 3));
  EXPECT_THAT(metric.compute(), ElementsAre(0.5));
  metric.reset();
  EXPECT_THAT(metric.compute(), ElementsAre(0.0));
}

TEST(Accuracy, RefusesWhatDoesNotFit) {
  EXPECT_THAT([] { metric::Accuracy().update(kScores, torch::zeros({3})); },
              ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("4 x 3"), HasSubstr("labels 3"))));
  EXPECT_THAT([] { metric::Accuracy({0}); }, ThrowsMessage<UsageError>(HasSubstr("{0}")));
}

const torch::Tensor kProbabilities = torch::tensor({0.9, 0.5, 0.6, 0.4, 0.1, 0.2}, torch::kFloat);
const torch::Tensor kTruth = torch::tensor({1, 1, 0, 1, 0, 0});

TEST(Precision, IsTheShareOfThoseTaken) {
  EXPECT_THAT(value(metric::Precision(), kProbabilities, kTruth), ElementsAre(DoubleNear(2.0 / 3, 1e-12)));
  EXPECT_THAT(value(metric::Precision(), kProbabilities.unsqueeze(1), kTruth), ElementsAre(DoubleNear(2.0 / 3, 1e-12)));
}

TEST(Precision, IsZeroWhenNoneIsTaken) {
  EXPECT_THAT(value(metric::Precision(), torch::zeros({6}), kTruth), ElementsAre(0.0));
}

TEST(Recall, IsTheShareOfThoseThatAre) {
  EXPECT_THAT(value(metric::Recall(), kProbabilities - 0.05, kTruth), ElementsAre(DoubleNear(1.0 / 3, 1e-12)));
  EXPECT_THAT(value(metric::Recall(), kProbabilities, torch::zeros({6})), ElementsAre(0.0));
}

TEST(Recall, RefusesTwoColumns) {
  EXPECT_THAT(
      [] {
        metric::Recall().update(torch::zeros({6, 2}), kTruth);
      },
      ThrowsMessage<UsageError>(HasSubstr("12 outputs for 6 labels")));
}

TEST(Auc, CountsPairsInTheRightOrder) {
  // positive 0.9 0.5 0.4, negative 0.6 0.1 0.2: 3 + 2 + 2 of 9 pairs
  EXPECT_THAT(value(metric::Auc(), kProbabilities, kTruth), ElementsAre(DoubleNear(7.0 / 9, 1e-12)));
}

TEST(Auc, TakesTheSecondOfTwoColumns) {
  const torch::Tensor both = torch::stack({1 - kProbabilities, kProbabilities}, 1);
  EXPECT_THAT(value(metric::Auc(), both, kTruth.unsqueeze(1)), ElementsAre(DoubleNear(7.0 / 9, 1e-12)));
}

TEST(Auc, TiesCountHalf) {
  EXPECT_THAT(value(metric::Auc(), torch::full({6}, 0.3), kTruth), ElementsAre(0.5));
  EXPECT_THAT(value(metric::Auc(1), kProbabilities, kTruth), ElementsAre(0.5));  // all in one interval
}

TEST(Auc, IsZeroWithoutOneOfTheKinds) {
  EXPECT_THAT(value(metric::Auc(), kProbabilities, torch::ones({6})), ElementsAre(0.0));
  EXPECT_THAT([] { metric::Auc(0); }, ThrowsMessage<UsageError>(HasSubstr("0 thresholds")));
}

TEST(Auc, AddsUpOverParts) {
  metric::Auc whole, first, second;
  whole.update(kProbabilities, kTruth);
  first.update(kProbabilities.narrow(0, 0, 2), kTruth.narrow(0, 0, 2));
  second.update(kProbabilities.narrow(0, 2, 4), kTruth.narrow(0, 2, 4));
  EXPECT_EQ(whole.result(first.sums() + second.sums()), whole.compute());
}

}  // namespace
}  // namespace trireme
