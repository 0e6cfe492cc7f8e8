// Several models and optimizers in one checkpoint.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_hardship.h"
#include "trireme/core/test_support.h"
#include "trireme/io/checkpoint/checkpoint.h"
#include "trireme/io/checkpoint_folder.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Two networks that train against each other.
struct Gan {
  explicit Gan(uint64_t seed = 1, int64_t width = 40) {
    torch::manual_seed(seed);
    generator = torch::nn::Linear(4, width);
    discriminator = torch::nn::Linear(width, 1);
    adam.emplace(generator->parameters(), 0.01);
    sgd.emplace(discriminator->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  }
  void step() {
    const torch::Tensor judged = torch::sigmoid(discriminator(generator(torch::rand({8, 4}))));
    adam->zero_grad(), sgd->zero_grad();
    judged.mean().backward();
    adam->step(), sgd->step();
  }
  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
  }
  TrainingState state() {
    return {.models = {{"generator", generator}, {"discriminator", discriminator}},
            .optimizers = {{"generator", *adam}, {"discriminator", *sgd}}};
  }
  std::string bits() {
    std::string all;
    for (const auto& [group, tensors] : detail::take(state()).tensors)
      for (const auto& item : tensors) {
        const torch::Tensor tensor = item.value().contiguous();
        all += group + item.key() + std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
      }
    return all;
  }

  torch::nn::Linear generator = nullptr, discriminator = nullptr;
  std::optional<torch::optim::Adam> adam;
  std::optional<torch::optim::SGD> sgd;
};

class SeveralModels : public testing::Test {
 protected:
  void save(Gan& gan, int64_t step) { Checkpoint(folder).save(gan.state(), {.step = step}); }
  std::string refused(const TrainingState& state) {
    return message_of<UsageError>([&] { Checkpoint(folder).restore(state); });
  }

  TempDir temporary{"gan"};
  std::filesystem::path folder = temporary.path() / "out";
};

TEST_F(SeveralModels, GoOnWithTheBitsOfAnUnbrokenRun) {
  Gan unbroken;
  unbroken.run(6);
  Gan broken;
  broken.run(3);
  save(broken, 3);
  for (const char* file : {"model.generator", "model.discriminator", "optimizer.generator", "optimizer.discriminator"})
    EXPECT_TRUE(std::filesystem::exists(folder / "step_000000003" / (std::string(file) + ".safetensors"))) << file;
  Gan resumed(99);
  EXPECT_EQ(Checkpoint(folder).restore(resumed.state()).step, 3);
  EXPECT_EQ(resumed.bits(), broken.bits());
  resumed.run(3);
  EXPECT_EQ(resumed.bits(), unbroken.bits());
}

TEST_F(SeveralModels, AreNeverOneOfTwoAfterAKill) {
  Gan gan;
  gan.run(2);
  const std::string before = gan.bits();
  save(gan, 2);
  gan.run(2);
  // The discriminator's files have 300 to 500 bytes, the generator's more than 800: the kill is between them.
  ASSERT_TRUE(killed_at_byte(700, [&] { save(gan, 4); }));
  Gan resumed(99);
  EXPECT_EQ(Checkpoint(folder).restore(resumed.state()).step, 2);
  EXPECT_EQ(resumed.bits(), before);
}

TEST_F(SeveralModels, ThatAreMissingOrAdditionalAreNamed) {
  Gan gan;
  save(gan, 1);
  const std::string untouched = gan.bits();
  EXPECT_THAT(refused({.models = {{"generator", gan.generator}}}),
              AllOf(HasSubstr("has the models discriminator, generator"), HasSubstr("restores generator;")));
  torch::nn::Linear third(2, 2);
  TrainingState more = gan.state();
  more.models.push_back({"encoder", third});
  EXPECT_THAT(refused(more), HasSubstr("restores discriminator, encoder, generator"));
  TrainingState fewer = gan.state();
  fewer.optimizers.pop_back();
  EXPECT_THAT(refused(fewer), HasSubstr("has the optimizers discriminator, generator"));
  EXPECT_THAT(refused({.model = gan.generator}), AllOf(HasSubstr("has no 'model'"), HasSubstr("model.generator")));
  EXPECT_EQ(gan.bits(), untouched);
  fewer.optimizers.clear();
  EXPECT_EQ(Checkpoint(folder).restore(fewer).step, 1) << "an evaluation needs no optimizers";
}

TEST_F(SeveralModels, OfAnotherShapeAreRefusedAndNothingChanges) {
  Gan gan;
  save(gan, 1);
  Gan wider(5, 41);
  const std::string before = wider.bits();
  EXPECT_THAT(refused(wider.state()), AllOf(HasSubstr("model."), HasSubstr("41"), HasSubstr("40")));
  EXPECT_EQ(wider.bits(), before);
}

TEST_F(SeveralModels, AreNotASingleModelsCheckpoint) {
  Gan gan;
  Checkpoint(folder).save({.model = gan.generator, .optimizer = *gan.adam}, {.step = 1});
  EXPECT_THAT(refused(gan.state()), AllOf(HasSubstr("has the models without names"), HasSubstr("generator")));
  EXPECT_EQ(Checkpoint(folder).restore({.model = gan.generator, .optimizer = *gan.adam}).step, 1);
}

TEST_F(SeveralModels, NeedNamesOfTheirOwn) {
  Gan gan;
  const auto message = [&](const TrainingState& state) {
    return message_of<UsageError>([&] { Checkpoint(folder).save(state); });
  };
  EXPECT_THAT(message({}), HasSubstr("has no model"));
  EXPECT_THAT(message({.models = {{"a", gan.generator}, {"a", gan.discriminator}}}), HasSubstr("two models named 'a'"));
  EXPECT_THAT(message({.models = {{"a/b", gan.generator}}}), HasSubstr("model.a/b"));
  EXPECT_THAT(message({.models = {{"a", gan.generator}}, .optimizers = {{"a", *gan.sgd}}}), HasSubstr("has no name"));
}

TEST_F(SeveralModels, MayStandBesideAnUnnamedOne) {
  Gan gan;
  torch::nn::Linear main(2, 2);
  torch::optim::SGD both({main->parameters()[0], gan.generator->parameters()[0]}, 0.1);
  const TrainingState state{.model = main, .optimizer = both, .models = {{"generator", gan.generator}}};
  Checkpoint(folder).save(state, {.step = 1});
  const torch::Tensor saved = gan.generator->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    gan.generator->weight.zero_();
  }
  EXPECT_EQ(Checkpoint(folder).restore(state).step, 1);
  EXPECT_TRUE(gan.generator->weight.equal(saved));
}

}  // namespace
}  // namespace trireme
