#include "trireme/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/test_support.h"
#include "trireme/data/test_numbers.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience(20);

using Batches = std::vector<std::vector<int64_t>>;

Batches loop(Loader& loader) {
  Batches batches;
  for (auto& [x, y] : loader) {
    EXPECT_TRUE(torch::equal(y, x * 10));
    batches.push_back(values(x));
  }
  return batches;
}

class Workers : public ::testing::TestWithParam<int> {
 protected:
  LoaderOptions with_workers(LoaderOptions options) const {
    options.workers = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Loader, Workers, ::testing::Values(0, 1, 3));

TEST_P(Workers, YieldThisRanksShare) {
  Loader loader(numbers(10), with_workers({.batch_size = 3}), {1, 2});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_THAT(loop(loader), ElementsAre(ElementsAre(3, 4, 5), ElementsAre(8, 9)));
}

TEST_P(Workers, FollowTheSamplersOrderThroughEpochs) {
  Loader loader(numbers(10), with_workers({.batch_size = 10, .shuffle = true}));
  EXPECT_THAT(loop(loader), ElementsAre(ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5)));
  EXPECT_EQ(loader.epoch(), 1);
  const Batches second = loop(loader);
  loader.set_epoch(0);
  EXPECT_THAT(loop(loader), ElementsAre(ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5)));
  EXPECT_EQ(loop(loader), second);
}

TEST_P(Workers, TakeTheOtherOptionsToo) {
  Loader loader(numbers(10),
                with_workers({.batch_size = 4, .shuffle = true, .drop_last = true, .order = Order::torch, .seed = 5}));
  EXPECT_EQ(loader.size(), 2);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const auto order = values(torch::randperm(10, generator));
  EXPECT_EQ(loop(loader), (Batches{{order.begin(), order.begin() + 4}, {order.begin() + 4, order.begin() + 8}}));
}

TEST_P(Workers, SaveAndLoadInsideOfALoop) {
  const auto options = with_workers({.batch_size = 4, .shuffle = true});
  Loader unbroken(numbers(50), options, {0, 2});
  const Batches whole = loop(unbroken);
  const Batches second = loop(unbroken);
  for (size_t taken = 1; taken <= whole.size(); ++taken) {
    Loader before(numbers(50), options, {0, 2});
    size_t seen = 0;
    SamplerState state;
    for ([[maybe_unused]] auto& batch : before)
      if (++seen == taken) {
        state = before.state();
        break;
      }
    EXPECT_EQ(state.consumed(), std::min<int64_t>(50, static_cast<int64_t>(taken) * 8));
    Loader after(numbers(50), options, {0, 2});
    after.load_state(parse_sampler_state(to_text(state)));
    EXPECT_EQ(loop(after), Batches(whole.begin() + static_cast<long>(taken), whole.end()));
    EXPECT_EQ(loop(after), second);
  }
}

TEST_P(Workers, LoadIntoAnotherWorld) {
  const auto options = with_workers({.batch_size = 4, .shuffle = true});
  std::multiset<int64_t> seen;
  const auto see = [&](const torch::Tensor& x) {
    for (const int64_t value : values(x)) seen.insert(value);
  };
  SamplerState state;
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(numbers(48), options, {rank, 3});
    int steps = 0;
    for (auto& [x, y] : loader) {
      see(x);
      if (++steps == 2) break;
    }
    state = loader.state();
  }
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader(numbers(48), options, {rank, 2});
    loader.load_state(state);
    for (auto& [x, y] : loader) see(x);
  }
  EXPECT_EQ(seen.size(), 48u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 48u);
}

TEST_P(Workers, ANewLoopAfterBreakBringsNothingOld) {
  Loader loader(numbers(40), with_workers({.batch_size = 4, .shuffle = true}));
  for ([[maybe_unused]] auto& batch : loader) break;
  const Batches second = loop(loader);
  loader.set_epoch(1);
  EXPECT_EQ(loop(loader), second);
}

TEST_P(Workers, ALoopInsideOfALoopIsAnError) {
  Loader loader(numbers(8), with_workers({.batch_size = 4}));
  int batches = 0;
  const auto nested = [&] {
    for ([[maybe_unused]] auto& outer : loader)
      for ([[maybe_unused]] auto& inner : loader) ++batches;
  };
  EXPECT_THAT(nested, ::testing::ThrowsMessage<UsageError>(HasSubstr("a Loader for each loop")));
  EXPECT_EQ(batches, 2);
}

TEST_P(Workers, SetEpochEndsTheLoopThatRuns) {
  Loader loader(numbers(40), with_workers({.batch_size = 4}));
  int batches = 0;
  for ([[maybe_unused]] auto& batch : loader) {
    ++batches;
    loader.set_epoch(7);
  }
  EXPECT_EQ(batches, 1);
  EXPECT_EQ(loader.epoch(), 7);
}

/// Fails for one sample; remembers who asked.
class Picky : public Dataset {
 public:
  int64_t size() const override { return 10; }
  Sample get(int64_t index) const override {
    asked_from_ = std::this_thread::get_id();
    if (index == 5 && damaged_) throw std::out_of_range("image 5 is damaged");
    EXPECT_FALSE(torch::GradMode::is_enabled());
    return {torch::tensor(index), torch::tensor(index * 10)};
  }
  std::thread::id asked_from() const { return asked_from_; }
  void mend() { damaged_ = false; }

 private:
  std::atomic<bool> damaged_ = true;
  mutable std::atomic<std::thread::id> asked_from_;
};

TEST_P(Workers, WhatTheDatasetThrowsReachesTheLoop) {
  auto dataset = std::make_shared<Picky>();
  Loader loader(dataset, with_workers({.batch_size = 2}));
  int batches = 0;
  try {
    for (auto& [x, y] : loader) {
      batches += x.size(0) == 2;
      EXPECT_EQ(loader.state().consumed(), 2 * batches);
    }
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "image 5 is damaged");
  }
  EXPECT_EQ(batches, 2);
  EXPECT_EQ(loader.state().consumed(), 4);  // the failed batch does not count
  EXPECT_EQ(dataset->asked_from() == std::this_thread::get_id(), GetParam() == 0);
}

TEST_P(Workers, AFailedBatchIsThrownOnceAndAskedForAgain) {
  auto dataset = std::make_shared<Picky>();
  Loader loader(dataset, with_workers({.batch_size = 2}));
  auto batch = loader.begin();
  ++batch;
  EXPECT_THROW(++batch, std::out_of_range);
  EXPECT_TRUE(batch == nullptr);
  dataset->mend();
  ++batch;
  EXPECT_THAT(values(batch->data), ElementsAre(4, 5));
  ++batch;
  EXPECT_THAT(values(batch->data), ElementsAre(6, 7));
  EXPECT_EQ(loader.state().consumed(), 8);
}

/// The draw is all there is to a sample.
class Draws : public RandomDataset {
 public:
  int64_t size() const override { return 50; }
  Sample get(int64_t index, uint64_t draw) const override {
    return {torch::tensor(static_cast<int64_t>(draw)), torch::tensor(index)};
  }
};

std::vector<int64_t> three_epochs_of_draws(int workers, int prefetch) {
  Loader loader(Draws(), {.batch_size = 4, .shuffle = true, .seed = 3, .workers = workers, .prefetch = prefetch});
  std::vector<int64_t> draws;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto& [x, y] : loader)
      for (const int64_t value : values(x)) draws.push_back(value);
  return draws;
}

TEST(LoaderDraws, DoNotDependOnTheWorkers) {
  const auto expected = three_epochs_of_draws(0, 1);
  EXPECT_EQ(std::set<int64_t>(expected.begin(), expected.end()).size(), 150u);  // other ones in each epoch
  for (const int workers : {1, 2, 5})
    for (const int prefetch : {1, 3}) EXPECT_EQ(three_epochs_of_draws(workers, prefetch), expected);
}

TEST_P(Workers, DrawsGoOnAfterLoading) {
  const auto options = with_workers({.batch_size = 4, .shuffle = true, .seed = 3});
  Loader whole(Draws(), options);
  std::vector<int64_t> draws;
  for (auto& [x, y] : whole)
    for (const int64_t value : values(x)) draws.push_back(value);
  Loader before(Draws(), options);
  auto batch = before.begin();
  ++batch;
  LoaderOptions other = options;
  other.seed = 77;  // the state's counts
  Loader after(Draws(), other);
  after.load_state(before.state());
  std::vector<int64_t> rest;
  for (auto& [x, y] : after)
    for (const int64_t value : values(x)) rest.push_back(value);
  EXPECT_EQ(rest, std::vector<int64_t>(draws.begin() + 8, draws.end()));
}

TEST_P(Workers, ALoaderMayBeMovedAndLeftEarly) {
  Loader first(numbers(40), with_workers({.batch_size = 4}));
  for ([[maybe_unused]] auto& batch : first) break;
  Loader second = std::move(first);
  EXPECT_EQ(loop(second).size(), 10u);
}

TEST_P(Workers, BatchesThatWereKeptDoNotChange) {
  Loader loader(numbers(8), with_workers({.batch_size = 4}));
  std::vector<torch::Tensor> kept;
  for (auto& [x, y] : loader) kept.push_back(x);
  EXPECT_THAT(values(kept[0]), ElementsAre(0, 1, 2, 3));
}

/// Tells how many batches were asked for, and holds the worker back on demand.
class Watched : public Dataset {
 public:
  explicit Watched(bool slow = false) : slow_(slow) {}
  int64_t size() const override { return 10; }
  Sample get(int64_t index) const override {
    // An even sample is not done before the odd one behind it: only with several workers does this end in time.
    if (slow_ && index % 2 == 0) wait_until_done(index + 1);
    std::unique_lock lock(mutex_);
    done_.insert(index);
    ++asked_;
    changed_.notify_all();
    changed_.wait_for(lock, kPatience, [this] { return !held_; });
    return {torch::tensor(index), torch::tensor(index * 10)};
  }
  bool wait_until_asked(int count) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return asked_ >= count; });
  }
  void wait_until_done(int64_t index) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return done_.contains(index); });
  }
  void hold(bool held) const {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  int asked() const {
    std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int asked_ = 0;
  mutable bool held_ = false;
  mutable std::set<int64_t> done_;
  bool slow_;
};

TEST(LoaderAhead, TheNextBatchIsReadWhileThisOneIsUsed) {
  auto dataset = std::make_shared<Watched>();
  Loader loader(dataset, {.batch_size = 1});
  auto batch = loader.begin();
  EXPECT_TRUE(dataset->wait_until_asked(2));
  EXPECT_EQ(values(batch->data), std::vector<int64_t>{0});
  EXPECT_EQ(loader.state().consumed(), 1);  // what was read ahead does not count
  EXPECT_TRUE(dataset->wait_until_asked(3));
  EXPECT_EQ(dataset->asked(), 3);  // this one and two ahead
}

TEST(LoaderAhead, AllWorkersBeginAtOnce) {
  auto dataset = std::make_shared<Watched>();
  dataset->hold(true);
  Loader loader(dataset, {.batch_size = 1, .workers = 3, .prefetch = 1});
  auto first = std::async(std::launch::async, [&] { return loader.begin(); });
  EXPECT_TRUE(dataset->wait_until_asked(3));  // though none of them is done
  EXPECT_EQ(dataset->asked(), 3);
  dataset->hold(false);
  EXPECT_EQ(values(first.get()->data), std::vector<int64_t>{0});
  EXPECT_TRUE(dataset->wait_until_asked(4));
}

TEST(LoaderAhead, AFewSlowBatchesComeInTheirTurn) {
  auto dataset = std::make_shared<Watched>(/*slow=*/true);
  Loader loader(dataset, {.batch_size = 1, .workers = 4});
  EXPECT_EQ(loop(loader), (Batches{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}}));
}

TEST(LoaderAhead, WithoutWorkersNothingIsReadBeforeItIsWanted) {
  auto dataset = std::make_shared<Watched>();
  Loader loader(dataset, {.batch_size = 1, .workers = 0});
  auto batch = loader.begin();
  EXPECT_EQ(dataset->asked(), 1);
  ++batch;
  EXPECT_EQ(dataset->asked(), 2);
}

TEST(LoaderAhead, ASlowDatasetIsAnErrorInTime) {
  auto dataset = std::make_shared<Watched>();
  dataset->hold(true);
  Loader loader(dataset, {.batch_size = 1, .timeout = std::chrono::seconds(0)});
  try {
    loader.begin();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.number(), ETIMEDOUT);
    EXPECT_THAT(error.what(), HasSubstr("batch 0 of epoch 0 was not ready after 0 s"));
  }
  dataset->hold(false);
}

struct FakeWorld {
  operator RankInfo() const { return {1, 2}; }
  torch::Device device() const { return torch::kMeta; }
};

TEST(LoaderDevice, BatchesLieOnTheDeviceOfTheWorld) {
  Loader loader(numbers(10), {.batch_size = 3}, FakeWorld());
  int batches = 0;
  for (auto& [x, y] : loader) {
    ++batches;
    EXPECT_TRUE(x.is_meta());
    EXPECT_TRUE(y.is_meta());
  }
  EXPECT_EQ(batches, 2);
  auto shared = std::make_shared<TensorDataset>(numbers(10));
  EXPECT_TRUE(Loader(shared, {}, FakeWorld()).begin()->data.is_meta());
  EXPECT_TRUE(Loader(shared, {}, RankInfo(FakeWorld())).begin()->data.is_cpu());
}

TEST(LoaderErrors, NameWhatIsWrong) {
  EXPECT_THAT(refusal([] { Loader(numbers(0)); }), HasSubstr("the dataset has 0 samples"));
  EXPECT_THAT(refusal([] { Loader(numbers(3), {.batch_size = 0}); }), HasSubstr("batch_size is 0"));
  EXPECT_THAT(refusal([] { Loader(numbers(3), {.workers = -1}); }), HasSubstr("workers is -1"));
  EXPECT_THAT(refusal([] { Loader(numbers(3), {.workers = 2000}); }), HasSubstr("workers is 2000"));
  EXPECT_THAT(refusal([] { Loader(numbers(3), {.prefetch = 0}); }), HasSubstr("prefetch is 0"));
  EXPECT_THAT(refusal([] { Loader(numbers(3), {.multi_scale = {.scales = {7}}}); }), HasSubstr("image size is 7"));
  EXPECT_THAT(refusal([] { Loader(numbers(3), {}, {2, 2}); }), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(refusal([] { Loader(std::shared_ptr<const Dataset>()); }), HasSubstr("null pointer"));
  Loader loader(numbers(3));
  const CaughtLog caught;
  loader.load_state({.samples = 4, .epoch = 2});
  EXPECT_THAT(caught.lines(),
              ElementsAre(HasSubstr("the dataset had 4 samples and now has 3; epoch 2 begins with all of them")));
  EXPECT_EQ(loop(loader).size(), 3u);
  EXPECT_THAT(refusal([&] { loader.load_state({.samples = 4, .stages = {{.ranks = 1, .consumed = 2}}}); }),
              HasSubstr("of 4 samples, this one has 3, and epoch 0 has consumed 2 of them; finish that epoch"));
}

// Variables of a rank that torchrun has started.
class RankOfTwo {
 public:
  RankOfTwo() { set("0", "2", "1", "127.0.0.1", "29500"); }
  ~RankOfTwo() { set({}, {}, {}, {}, {}); }

 private:
  using Value = std::optional<std::string>;
  static void set(const Value& rank, const Value& size, const Value& nodes, const Value& host, const Value& port) {
    for (const char* name : {"RANK", "LOCAL_RANK"}) env::set(name, rank);
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) env::set(name, size);
    env::set("GROUP_WORLD_SIZE", nodes);
    env::set("MASTER_ADDR", host);
    env::set("MASTER_PORT", port);
  }
};

TEST(LoaderWorld, OneThatIsMissingIsWarnedOfOnce) {
  std::vector<std::string> warnings;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view text) { warnings.emplace_back(text); });
  Loader(numbers(10));
  {
    const RankOfTwo rank;
    Loader(numbers(10), {}, RankInfo{0, 1});  // meant
    Loader(numbers(10), {}, FakeWorld());
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    Loader(numbers(10));
    Loader(numbers(10), {.batch_size = 2});
  }
  set_log_sink(before);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("2 ranks, and each of them reads all 10 samples; pass the world as the third"));
}

}  // namespace
}  // namespace trireme::data
