#include "trireme/data/wrappers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <set>

#include "trireme/core/test_support.h"
#include "trireme/data/loader.h"
#include "trireme/data/synthetic.h"
#include "trireme/data/test_numbers.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Sample i is (index, draw); counts how often it is asked.
class Drawn : public RandomDataset {
 public:
  using RandomDataset::get;
  int64_t size() const override { return 10; }
  Sample get(int64_t index, uint64_t draw) const override {
    ++*asked_;
    return {torch::tensor(index), torch::tensor(static_cast<int64_t>(draw))};
  }
  int asked() const { return *asked_; }

 private:
  std::shared_ptr<std::atomic<int>> asked_ = std::make_shared<std::atomic<int>>(0);
};

Pick pick(std::vector<int64_t> indices) {
  std::vector<uint64_t> draws;
  for (const int64_t index : indices) draws.push_back(static_cast<uint64_t>(index + 100));
  return Pick::of(std::move(indices), std::move(draws));
}

TEST(Map, ChangesEachSample) {
  const Map doubled(numbers(5), [](const Sample& sample) { return Sample{sample.data * 2, sample.target}; });
  EXPECT_EQ(doubled.size(), 5);
  EXPECT_EQ(doubled.get(3).data.item<int64_t>(), 6);
  const Batch batch = doubled.batch(std::vector<int64_t>{4, 1});
  EXPECT_THAT(values(batch.data), ElementsAre(8, 2));
  EXPECT_THAT(values(batch.target), ElementsAre(40, 10));
}

TEST(Map, GetsTheDrawAndPassesItOn) {
  const Map map(Drawn(), [](const Sample& sample, uint64_t draw) {
    return Sample{sample.data, sample.target * 1000 + static_cast<int64_t>(draw)};
  });
  EXPECT_THAT(values(map.batch(pick({2, 7})).target), ElementsAre(102102, 107107));
  EXPECT_EQ(map.get(2, 5).target.item<int64_t>(), 5005);
}

TEST(Map, KnowsTheImageSize) {
  const Map map(Synthetic({.samples = 4, .shape = {1, 8, 8}}), [](const Sample& sample) { return sample; });
  EXPECT_EQ(map.batch(Pick::of({0, 1}, {0, 0}, 16)).data.size(3), 16);
}

TEST(Subset, HasTheSamplesNamed) {
  const Subset subset(Drawn(), {7, 2, 7});
  EXPECT_EQ(subset.size(), 3);
  const Batch batch = subset.batch(pick({0, 1, 2}));
  EXPECT_THAT(values(batch.data), ElementsAre(7, 2, 7));
  EXPECT_THAT(values(batch.target), ElementsAre(100, 101, 102));  // draws are of the Loader's samples
  EXPECT_EQ(subset.get(1, 0).data.item<int64_t>(), 2);
  EXPECT_THAT(values(Subset(numbers(9), 4, 3).batch(std::vector<int64_t>{0, 2}).data), ElementsAre(4, 6));
  EXPECT_THROW(subset.get(3, 0), std::out_of_range);
}

TEST(Subset, RefusesWhatIsNotThere) {
  EXPECT_THAT(refusal([] { Subset(numbers(5), {0, 5}); }), HasSubstr("there is no sample 5 in a dataset of 5"));
  EXPECT_THAT(refusal([] { Subset(numbers(5), {-1}); }), HasSubstr("no sample -1"));
  EXPECT_THAT(refusal([] { Subset(numbers(5), 3, 3); }), HasSubstr("samples 3 to 5 are wanted, but the dataset has 5"));
  EXPECT_THAT(refusal([] { Subset(std::shared_ptr<Drawn>(), {0}); }), HasSubstr("null pointer"));
}

TEST(Shuffled, IsAlwaysTheSamePermutation) {
  const auto order = [](uint64_t seed) {
    const Subset subset = shuffled(numbers(20), seed);
    std::vector<int64_t> all(20);
    std::iota(all.begin(), all.end(), 0);
    return values(subset.batch(all).data);
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  const auto once = order(1);
  EXPECT_EQ(std::set<int64_t>(once.begin(), once.end()).size(), 20u);
}

TEST(Concat, GoesFromOneToTheNext) {
  const Concat all({numbers(3), Drawn(), std::make_shared<TensorDataset>(numbers(2))});
  EXPECT_EQ(all.size(), 15);
  const Batch batch = all.batch(pick({14, 0, 3, 12, 2, 13}));
  EXPECT_THAT(values(batch.data), ElementsAre(1, 0, 0, 9, 2, 0));
  EXPECT_THAT(values(batch.target), ElementsAre(10, 0, 103, 112, 20, 0));
  EXPECT_THAT(values(all.batch(pick({1, 0})).data), ElementsAre(1, 0));
  EXPECT_EQ(all.get(4, 9).target.item<int64_t>(), 9);
  EXPECT_THROW(all.get(15, 0), c10::IndexError);
  EXPECT_THAT(refusal([] { Concat(std::vector<Shared>()); }), HasSubstr("no dataset"));
}

TEST(Cache, ReadsEachSampleOnce) {
  const Drawn drawn;
  const Cache cache(drawn);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(cache.get(4).data.item<int64_t>(), 4);
    EXPECT_THAT(values(cache.batch(pick({4, 5})).data), ElementsAre(4, 5));
  }
  EXPECT_EQ(drawn.asked(), 2);
  EXPECT_THROW(cache.get(10), std::out_of_range);
}

TEST(Cache, ServesManyWorkers) {
  const Cache cache(numbers(100));
  Loader loader(cache, {.batch_size = 3, .workers = 4});
  for (int epoch = 0; epoch < 3; ++epoch) {
    int64_t sum = 0;
    for (auto& [x, y] : loader) sum += x.sum().item<int64_t>();
    EXPECT_EQ(sum, 4950);
  }
}

TEST(Wrappers, FitTogether) {
  const auto mixed = shuffled(Synthetic({.samples = 50, .shape = {2}, .class_num = 5}), 1);
  const Subset validation(mixed, 0, 10), rest(mixed, 10, 40);
  const Map noisy(rest, [](const Sample& sample, uint64_t draw) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(draw);
    return Sample{sample.data + 0.1 * torch::randn(sample.data.sizes(), generator), sample.target};
  });
  const auto sums = [&](int workers) {
    Loader loader(Concat({noisy, Cache(validation)}), {.batch_size = 7, .shuffle = true, .workers = workers});
    std::vector<double> all;
    for (auto& [x, y] : loader) all.push_back(x.sum().item<double>());
    return all;
  };
  EXPECT_EQ(sums(0), sums(3));
  EXPECT_EQ(sums(0).size(), 8u);
}

TEST(Synthetic, IsTheSameForTheSameSeed) {
  const Synthetic noise({.samples = 100, .shape = {3, 32, 32}, .class_num = 7, .seed = 1});
  const Batch batch = noise.batch(std::vector<int64_t>{5, 6, 5});
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{3, 3, 32, 32}));
  EXPECT_TRUE(torch::equal(batch.data[0], batch.data[2]));
  EXPECT_FALSE(torch::equal(batch.data[0], batch.data[1]));
  EXPECT_TRUE(torch::equal(batch.data[1], noise.get(6).data));
  const Synthetic other({.samples = 100, .shape = {3, 32, 32}, .class_num = 7, .seed = 2});
  EXPECT_FALSE(torch::equal(other.get(5).data, noise.get(5).data));
  EXPECT_NEAR(batch.data.mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(batch.data.std().item<double>(), 1, 0.05);
}

TEST(Synthetic, HasEveryClass) {
  const Synthetic noise({.samples = 1000, .shape = {1}, .class_num = 10});
  std::vector<int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  const auto counts = noise.batch(all).target.bincount();
  EXPECT_EQ(counts.numel(), 10);
  EXPECT_GT(counts.min().item<int64_t>(), 60);
}

TEST(Synthetic, ComesInChangingSizes) {
  const LoaderOptions options{.batch_size = 8, .workers = 2, .multi_scale = {.scales = {32, 64}}};
  Loader loader(Synthetic({.samples = 100, .shape = {1, 8, 8}}), options);
  std::set<std::pair<int64_t, int64_t>> shapes;
  int64_t batches = 0;
  for (auto& [x, y] : loader) {
    ++batches;
    EXPECT_EQ(x.size(2), x.size(3));
    if (batches < loader.size()) shapes.emplace(x.size(2), x.size(0));
  }
  EXPECT_EQ(batches, loader.size());
  EXPECT_EQ(shapes, (std::set<std::pair<int64_t, int64_t>>{{32, 8}, {64, 2}}));
}

TEST(Synthetic, RefusesNonsense) {
  EXPECT_THAT(refusal([] { Synthetic({.samples = 0}); }), HasSubstr("0 samples"));
  EXPECT_THAT(refusal([] { Synthetic({.shape = {3, 0}}); }), HasSubstr("all sizes must be 1 or more"));
  EXPECT_THROW(Synthetic({.samples = 5}).get(5), c10::IndexError);
}

}  // namespace
}  // namespace trireme::data
