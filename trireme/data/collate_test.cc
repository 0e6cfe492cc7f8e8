#include "trireme/data/collate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/core/test_support.h"
#include "trireme/data/batch_ops.h"
#include "trireme/data/loader.h"
#include "trireme/data/test_numbers.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Sample i: i + 1 tokens of value i, as many tags, a mask, and its number.
class Sentences : public Dataset {
 public:
  using Dataset::batch;
  using Dataset::get;
  int64_t size() const override { return 7; }
  Sample get(int64_t index) const override {
    return {{"tokens", torch::full({index + 1}, index)},
            {"tags", torch::full({index + 1, 2}, static_cast<float>(index))},
            {"mask", torch::ones({2, 2}, torch::kBool)},
            {"number", torch::tensor(index)}};
  }
};

Collate padded_sentences() {
  return {Sentences(), pad_sequences({{"tokens", -1}, {"tags"}})};
}

TEST(Sample, IsAnOrderedListOfNamedTensors) {
  Sample sample{{"image", torch::ones(2)}, {"boxes", torch::ones({3, 4})}, {"mask", torch::zeros(5)}};
  EXPECT_THAT(sample.names(), ElementsAre("image", "boxes", "mask"));
  EXPECT_EQ(sample["mask"].numel(), 5);
  EXPECT_TRUE(sample.contains("boxes"));
  EXPECT_FALSE(sample.contains("box"));
  sample["mask"] = torch::zeros(6);
  EXPECT_EQ(sample.tensor(2).numel(), 6);
  const auto& [x, y] = sample;
  EXPECT_TRUE(x.is_same(sample["image"]) && x.is_same(sample.data));
  EXPECT_TRUE(y.is_same(sample["boxes"]) && y.is_same(sample.target));
}

TEST(Sample, OfTwoTensorsBindsAsEver) {
  Sample pair{torch::ones(2), torch::zeros(3)};
  EXPECT_THAT(pair.names(), ElementsAre("data", "target"));
  auto& [x, y] = pair;
  x = torch::ones(7);
  EXPECT_EQ(pair["data"].numel(), 7);
  auto [a, b] = Sample{torch::ones(1), torch::ones(4)};
  EXPECT_EQ(a.numel() + b.numel() + y.numel(), 8);
  const Sample single{{"image", torch::ones(2)}};
  EXPECT_EQ(single.size(), 1u);
  EXPECT_FALSE(single.target.defined());
}

TEST(Sample, SaysWhichNamesThereAre) {
  Sample sample{{"image", torch::ones(2)}, {"mask", torch::ones(2)}};
  EXPECT_THAT(refusal([&] { sample["masks"]; }), AllOf(HasSubstr("'masks'"), HasSubstr("image, mask")));
  EXPECT_THAT(refusal([&] { sample.add("mask", {}); }), HasSubstr("two tensors named 'mask'"));
  EXPECT_THAT(refusal([] { Sample(std::vector<NamedTensor>()); }), HasSubstr("empty"));
  EXPECT_THAT(refusal([] { Sample{{"", torch::ones(2)}}; }), HasSubstr("tensor 0 has an empty name"));
}

TEST(Stack, StacksEachTensor) {
  const Batch batch = Subset(Sentences(), {2, 2}).batch(std::vector<int64_t>{0, 1});
  EXPECT_THAT(batch.names(), ElementsAre("tokens", "tags", "mask", "number"));
  EXPECT_THAT(batch["mask"].sizes(), ElementsAre(2, 2, 2));
  EXPECT_THAT(values(batch["number"]), ElementsAre(2, 2));
}

TEST(Stack, NamesTheTensorBothShapesAndBothSamples) {
  const std::string message = refusal([] { Sentences().batch(std::vector<int64_t>{4, 1}); });
  EXPECT_THAT(message, AllOf(HasSubstr("'tokens' is [5] in sample 4, but [2] in sample 1"),
                             HasSubstr("data::Collate(dataset, data::pad_sequences({{\"tokens\"}}))")));
  EXPECT_THAT(refusal([] {
                stack({Sample{torch::ones(1), torch::ones(1)}, Sample{{"a", torch::ones(1)}}});
              }),
              HasSubstr("one sample has the tensors data, target, but one sample has a"));
  EXPECT_THAT(refusal([] {
                stack({Sample{torch::ones(1), {}}, Sample{torch::ones(1), torch::ones(1)}});
              }),
              HasSubstr("'target' is undefined in one sample, but [1]"));
}

TEST(PadSequences, PadsToTheLongestAndTellsTheLengths) {
  const Batch batch = padded_sentences().batch(std::vector<int64_t>{0, 2});
  EXPECT_TRUE(torch::equal(batch["tokens"], torch::tensor({0, -1, -1, 2, 2, 2}, torch::kInt64).reshape({2, 3})));
  EXPECT_THAT(values(batch["tokens_lengths"]), ElementsAre(1, 3));
  EXPECT_THAT(batch["tags"].sizes(), ElementsAre(2, 3, 2));
  EXPECT_EQ(batch["tags"].sum().item<double>(), 12);
  EXPECT_THAT(batch["mask"].sizes(), ElementsAre(2, 2, 2));
  EXPECT_THAT(batch.names(), ElementsAre("tokens", "tags", "mask", "number", "tokens_lengths", "tags_lengths"));
  EXPECT_EQ(batch.data.size(1), 3) << "the first tensor is also `data`";
}

TEST(PadSequences, OfAPairKeepsItsNames) {
  const Map ragged(numbers(4), [](const Sample& sample) {
    return Sample{torch::arange(sample.data.item<int64_t>() + 1), sample.target};
  });
  for (auto& batch : Loader(Collate(Subset(ragged, {1, 3}), pad_sequences({{"data"}})), {.batch_size = 2})) {
    EXPECT_THAT(values(batch.data), ElementsAre(0, 1, 0, 0, 0, 1, 2, 3));
    EXPECT_THAT(values(batch.target), ElementsAre(10, 30));
    EXPECT_THAT(values(batch["data_lengths"]), ElementsAre(2, 4));
  }
}

TEST(PadSequences, SaysWhatDoesNotFit) {
  const auto message = [](std::vector<Pad> pads, const std::vector<Sample>& samples) {
    return refusal([&] { pad_sequences(std::move(pads))(samples); });
  };
  const std::vector<Sample> two = {{torch::ones({2, 3}), torch::tensor(1)}, {torch::ones({4, 5}), torch::tensor(2)}};
  EXPECT_THAT(message({{"x"}}, two), AllOf(HasSubstr("no tensor 'x'"), HasSubstr("data, target")));
  EXPECT_THAT(message({{"data"}}, two), AllOf(HasSubstr("[2, 3]"), HasSubstr("[4, 5]"), HasSubstr("only the first")));
  EXPECT_THAT(message({{"target"}}, {two[0], two[0]}), HasSubstr("'target' of sample -1 is a single number"));
  const std::vector<Sample> types = {{torch::ones({2}), {}}, {torch::ones({2}, torch::kInt64), {}}};
  EXPECT_THAT(message({{"data"}}, types), AllOf(HasSubstr("Float"), HasSubstr("Long")));
  EXPECT_THAT(message({{"data", 0.5}}, {types[1], types[1]}), HasSubstr("0.5 cannot be stored as Long"));
  EXPECT_THAT(refusal([] { pad_sequences({}); }), HasSubstr("list is empty"));
  EXPECT_THAT(refusal([] { Collate(Sentences(), CollateFunction()); }), HasSubstr("function is empty"));
}

/// "number: tokens" of each batch, in the order of the loop.
std::vector<std::vector<int64_t>> numbers_of(Loader& loader, int64_t most = 100) {
  std::vector<std::vector<int64_t>> all;
  for (auto& batch : loader) {
    all.push_back(values(batch["number"]));
    EXPECT_TRUE(torch::equal(batch["tokens_lengths"], batch["number"] + 1));
    EXPECT_EQ(batch["tokens"].size(1), batch["number"].max().item<int64_t>() + 1);
    if (static_cast<int64_t>(all.size()) == most) break;
  }
  return all;
}

TEST(Collate, GivesEachRankItsShareInOrder) {
  for (const int workers : {0, 3})
    for (int rank = 0; rank < 2; ++rank) {
      Loader loader(padded_sentences(), {.batch_size = 2, .workers = workers}, {rank, 2});
      const auto batches = numbers_of(loader);
      const std::vector<std::vector<int64_t>> expected[] = {{{0, 1}, {4, 5}}, {{2, 3}, {6, 0}}};
      EXPECT_EQ(batches, expected[rank]);
    }
}

TEST(Collate, GoesOnFromASavedPlace) {
  const LoaderOptions options{.batch_size = 2, .shuffle = true, .seed = 3, .workers = 2};
  Loader unbroken(padded_sentences(), options), broken(padded_sentences(), options),
      resumed(padded_sentences(), options);
  const auto all = numbers_of(unbroken);
  SamplerState place;
  for (auto& batch : broken) {
    EXPECT_EQ(values(batch["number"]), all[0]);
    place = broken.state();
    break;
  }
  resumed.load_state(place);
  EXPECT_EQ(numbers_of(resumed), (std::vector<std::vector<int64_t>>{all.begin() + 1, all.end()}));
}

TEST(Collate, TakesAFunctionAndThrowsItsErrorInTheLoop) {
  Loader sums(Collate(Sentences(),
                      [](const std::vector<Sample>& samples) {
                        if (samples[0].index == 4) throw UsageError("sample 4 is refused");
                        return Batch{{"count", torch::tensor(static_cast<int64_t>(samples.size()))}};
                      }),
              {.batch_size = 4, .workers = 2});
  int64_t batches = 0;
  EXPECT_THAT(refusal([&] {
                for (auto& batch : sums) batches += batch["count"].item<int64_t>();
              }),
              HasSubstr("sample 4 is refused"));
  EXPECT_EQ(batches, 4);
}

TEST(BatchMap, GoesAroundCollate) {
  const BatchMap longer(padded_sentences(), [](Batch batch, uint64_t) {
    batch["tokens"] = batch["tokens"] + 100;
    return batch;
  });
  EXPECT_THAT(values(longer.batch(std::vector<int64_t>{1})["tokens"]), ElementsAre(101, 101));
  EXPECT_THAT(refusal([] { BatchMap(padded_sentences(), Mixup{}).batch(std::vector<int64_t>{1}); }),
              AllOf(HasSubstr("Mixup"), HasSubstr("tokens, tags, mask")));
}

TEST(Concat, OfNamedTensorsPutsThemBackInOrder) {
  const Sentences sentences;
  const Concat both({Subset(sentences, {2}), Subset(sentences, {2, 5})});
  const Batch batch = both.batch(std::vector<int64_t>{1, 0});
  EXPECT_THAT(values(batch["number"]), ElementsAre(2, 2));
  EXPECT_THAT(refusal([&] {
                both.batch(std::vector<int64_t>{0, 2});
              }),
              AllOf(HasSubstr("'tokens'"), HasSubstr("Collate around Concat")));
  const Batch padded = Collate(both, pad_sequences({{"tokens"}, {"tags"}})).batch(std::vector<int64_t>{0, 2});
  EXPECT_THAT(values(padded["number"]), ElementsAre(2, 5));
}

TEST(TensorDataset, OfNamedTensorsGivesRows) {
  const TensorDataset scenes(
      {{"image", torch::arange(6).reshape({3, 2})}, {"mask", torch::arange(3)}, {"depth", torch::arange(3) * 2}});
  EXPECT_THAT(values(scenes.batch(std::vector<int64_t>{2, 0})["depth"]), ElementsAre(4, 0));
  EXPECT_EQ(scenes.get(1)["mask"].item<int64_t>(), 1);
  EXPECT_THAT(refusal([] {
                TensorDataset({{"a", torch::ones(3)}, {"b", torch::ones(3)}, {"c", torch::ones(4)}});
              }),
              HasSubstr("a has 3 rows, but c has 4"));
}

TEST(Cache, KeepsNamedTensors) {
  const Cache cache{Sentences()};
  for (int round = 0; round < 2; ++round) EXPECT_EQ(cache.batch(std::vector<int64_t>{3})["tokens"].numel(), 4);
}

}  // namespace
}  // namespace trireme::data
