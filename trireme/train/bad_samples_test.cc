// Samples that cannot be read: counted over all ranks, and not evaluated.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/data/wrappers.h"
#include "trireme/train/bad_total.h"
#include "trireme/train/eval_shard.h"
#include "trireme/train/model.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Points of three classes, some of which are bad; those that replace them have a label that they should not have.
class Holes : public data::RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  Holes(int64_t size, std::set<int64_t> bad) : size_(size), bad_(std::move(bad)) {}
  int64_t size() const override { return size_; }
  data::Sample get(int64_t index, uint64_t) const override {
    if (bad_.contains(index)) return {torch::zeros({3}), torch::tensor(int64_t{2})};
    const auto label = index % 3;
    return {torch::eye(3)[label] * static_cast<double>(index + 1), torch::tensor(label)};
  }
  data::Batch batch(const data::Pick& pick) const override {
    if (!pick.leave_out_bad) return RandomDataset::batch(pick);
    data::Pick good = pick;
    std::erase_if(good.indices, [&](int64_t index) { return bad_.contains(index); });
    if (good.indices.empty()) return {torch::empty({0}), torch::empty({0})};
    return RandomDataset::batch(good);
  }
  data::BadSamples bad() const override { return {size_, 100, {bad_.begin(), bad_.end()}, {}}; }

 private:
  int64_t size_;
  std::set<int64_t> bad_;
};

Model prepared() {
  torch::manual_seed(1);
  Model model(torch::nn::Linear(3, 3));
  model.prepare({.loss = torch::nn::CrossEntropyLoss(), .metrics = {metric::Accuracy()}});
  return model;
}

TEST(BadSamples, AreNotEvaluated) {
  const Holes holes(20, {1, 8, 9, 10, 11, 17});  // by batches of 4, a whole one
  const data::Subset rest(holes, {0, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 18, 19});
  const CaughtLog caught;
  Model model = prepared();
  const Results with = model.evaluate(holes, {.batch_size = 4, .verbose = 0});
  EXPECT_THAT(caught.lines(), testing::Contains(HasSubstr("evaluation: 6 of 20 samples could not be used")).Times(1));
  const Results without = model.evaluate(rest, {.batch_size = 4, .verbose = 0});
  EXPECT_NEAR(with.at("loss"), without.at("loss"), 1e-6);
  EXPECT_EQ(with.at("acc"), without.at("acc"));
}

TEST(BadSamples, HaveNoPrediction) {
  const CaughtLog caught;
  Model model = prepared();
  const torch::Tensor whole = model.predict(Holes(11, {}), {.batch_size = 4, .verbose = 0});
  const torch::Tensor outputs = model.predict(Holes(11, {2, 8, 9, 10}), {.batch_size = 4, .verbose = 0});
  ASSERT_EQ(outputs.sizes(), whole.sizes());
  for (int64_t i = 0; i < 11; ++i) {
    const bool bad = i == 2 || i >= 8;
    EXPECT_EQ(outputs[i].isnan().all().item<bool>(), bad) << i;
    EXPECT_EQ(outputs[i].equal(whole[i]), !bad) << i;
  }
}

TEST(BadSamples, OfAllRanksAreCountedOnce) {
  CaughtLog caught;
  std::vector<std::vector<double>> others = {{3, 4}, {4, 5, 6}};
  const auto gather = [&](const std::vector<double>& mine) {
    others[0] = mine;
    return others;
  };
  train::BadTotal total(std::make_shared<Holes>(500, std::set<int64_t>{3, 4}), "training");
  EXPECT_EQ(total.look({0, 2}, gather), 4);
  EXPECT_EQ(total.look({0, 2}, gather), 4);
  EXPECT_THAT(caught.lines(),
              ElementsAre(AllOf(HasSubstr("training: 4 of 500 samples"), HasSubstr("100 are allowed"))));
  for (int i = 0; i < 100; ++i) others[1].push_back(100 + i);
  EXPECT_THAT(
      [&] {
        total.look({0, 2}, gather);
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("104 of 500 samples"), HasSubstr("100 are allowed"))));
}

TEST(BadSamples, ThatAreAllThereIsAreAnError) {
  const CaughtLog caught;
  Model model = prepared();
  EXPECT_THAT(
      [&] {
        model.evaluate(Holes(2, {0, 1}), {.verbose = 0});
      },
      ThrowsMessage<UsageError>(HasSubstr("evaluation: 2 of 2 samples could not be used")));
}

TEST(BadSamples, ThatAreAllOfASubsetAreAnError) {
  const CaughtLog caught;
  Model model = prepared();
  EXPECT_THAT(
      [&] {
        model.evaluate(data::Subset(Holes(20, {1, 8}), {8, 1, 8}), {.verbose = 0});
      },
      ThrowsMessage<UsageError>(HasSubstr("evaluation: 2 of 2 samples could not be used")));
}

TEST(BadSamples, ThatAreAllOfOnePartLeaveTheOthers) {
  const CaughtLog caught;
  const data::TensorDataset good(torch::eye(3), torch::arange(3));
  Model model = prepared();
  const Results with = model.evaluate(data::Concat({Holes(2, {0, 1}), good}), {.batch_size = 4, .verbose = 0});
  EXPECT_THAT(caught.lines(), testing::Contains(HasSubstr("evaluation: 2 of 5 samples could not be used")));
  EXPECT_NEAR(with.at("loss"), model.evaluate(good, {.verbose = 0}).at("loss"), 1e-6);
}

TEST(BadSamples, StopATrainingWhenThereAreTooMany) {
  const CaughtLog caught;
  Model model = prepared();
  model.prepare([](auto parameters) { return torch::optim::SGD(parameters, 0.01); }, torch::nn::CrossEntropyLoss());
  std::set<int64_t> bad;
  for (int64_t i = 0; i < 101; ++i) bad.insert(i);
  EXPECT_THAT([&] { model.fit(Holes(200, bad), {.batch_size = 10, .verbose = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("training: 101 of 200 samples could not be used")));
}

}  // namespace
}  // namespace trireme
