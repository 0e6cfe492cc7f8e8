#include "trireme/train/model.h"

#include <gmock/gmock.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <sstream>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/train/test_model.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Model, Learns) {
  Model model = prepared(seeded_net());
  const Results before = model.evaluate(points(), {.batch_size = 16, .verbose = 0});
  const Results after = model.fit(points(), {.eval = points(), .batch_size = 10, .epochs = 20, .verbose = 0});
  EXPECT_LT(after.at("loss"), before.at("loss") / 2);
  EXPECT_GT(after.at("eval_acc"), 0.9);
  EXPECT_EQ(after.at("eval_loss"), model.evaluate(points(), {.batch_size = 10, .verbose = 0}).at("loss"));
}

TEST(Model, EqualsALoopByHand) {
  Model model = prepared(seeded_net());
  model.fit(points(), {.batch_size = 20, .epochs = 2, .verbose = 0, .shuffle = false});
  Net net = seeded_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 6; ++step) {
    const std::vector<int64_t> indices = [&] {
      std::vector<int64_t> list(20);
      for (int64_t i = 0; i < 20; ++i) list[static_cast<size_t>(i)] = step % 3 * 20 + i;
      return list;
    }();
    const auto batch = points().batch(indices);
    optimizer.zero_grad();
    torch::cross_entropy_loss(net->forward(batch.data), batch.target).backward();
    optimizer.step();
  }
  EXPECT_TRUE(flat(model).equal(flat(Model(net))));
}

TEST(Model, CallsItsCallbacksInOrder) {
  const auto diary = std::make_shared<Diary>();
  Model model = prepared(seeded_net());
  model.fit(points(6), {.eval = points(4),
                        .batch_size = 2,
                        .epochs = 2,
                        .eval_freq = 2,
                        .log_freq = 2,
                        .verbose = 0,
                        .callbacks = {diary}});
  EXPECT_EQ(diary->text, "train{epoch0{0()1(*)2(*)}epoch1{0()1(*)2(*)}eval{0()1()loss}}");
  diary->text.clear();
  model.predict(points(3), {.batch_size = 2, .verbose = 0, .callbacks = {diary}});
  EXPECT_EQ(diary->text, "predict{0()1()}");
}

TEST(Model, SaysWhyItsStepsHaveNoGraph) {
  Model model(seeded_net());
  model.prepare({.optimizer = sgd(0.1), .loss = torch::nn::CrossEntropyLoss(), .graph = true});
  const CaughtLog log;
  model.fit(points(), {.batch_size = 20, .verbose = 0});
  EXPECT_EQ(log.count("no CUDA graph: the model is not on a GPU"), 1U);
}

TEST(Model, PrintsNothingWhenToldSo) {
  Model model = prepared(seeded_net());
  testing::internal::CaptureStdout();
  model.fit(points(), {.eval = points(), .batch_size = 20, .verbose = 0});
  model.evaluate(points(), {.batch_size = 20, .verbose = 0});
  model.predict(points(), {.batch_size = 20, .verbose = 0});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Model, PrintsLinesByItself) {
  Model model = prepared(seeded_net());
  testing::internal::CaptureStdout();
  model.fit(points(), {.eval = points(), .batch_size = 20});
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::MatchesRegex("Epoch 1/1\nstep 3/3 - loss: [0-9.]+ - acc: [0-9.]+ - [0-9.]+[mu]?s/step\n"
                                    "Eval begin...\nstep 3/3 - loss: [0-9.]+ - acc: [0-9.]+ - [0-9.]+[mu]?s/step\n"
                                    "Eval samples: 60\n"));
}

TEST(Model, AProgressBarOfTheCallerTakesThePlace) {
  std::ostringstream text;
  Model model = prepared(seeded_net());
  testing::internal::CaptureStdout();
  model.fit(points(), {.batch_size = 20, .callbacks = {callback::ProgressBar({.out = &text})}});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_THAT(text.str(), HasSubstr("step 3/3"));
}

TEST(Model, PredictsInTheOrderOfTheDataset) {
  Model model(seeded_net());
  const torch::Tensor outputs = model.predict(points(11), {.batch_size = 4, .verbose = 0});
  ASSERT_EQ(outputs.sizes(), torch::IntArrayRef({11, 3}));
  for (int64_t i = 0; i < 11; ++i)
    EXPECT_TRUE(outputs[i].allclose(model.predict_batch(points(11).get(i).data.unsqueeze(0))[0], 1e-5, 1e-6));
}

TEST(Model, EvaluatesPartOfTheData) {
  Model model = prepared(seeded_net());
  std::ostringstream text;
  model.evaluate(points(), {.batch_size = 4, .callbacks = {callback::ProgressBar({.out = &text})}, .num_iters = 2});
  EXPECT_THAT(text.str(), HasSubstr("Eval samples: 8"));
}

TEST(Model, EvaluatesTheAverageOverSamples) {
  Model model = prepared(seeded_net());
  const Results results = model.evaluate(points(), {.batch_size = 7, .verbose = 0});
  std::vector<int64_t> indices(60);
  for (size_t i = 0; i < 60; ++i) indices[i] = static_cast<int64_t>(i);
  const auto batch = points().batch(indices);
  EXPECT_NEAR(results.at("loss"), model.eval_batch(batch.data, batch.target).at("loss"), 1e-6);
  EXPECT_EQ(results.at("acc"), model.eval_batch(batch.data, batch.target).at("acc"));
}

TEST(Model, TrainsOnBatchesOfTheCaller) {
  const auto batch = points().batch(std::vector<int64_t>{0, 1, 2, 3});
  Model model = prepared(seeded_net());
  const torch::Tensor before = flat(model).clone();
  const Results results = model.train_batch(batch.data, batch.target, {.update = false});
  EXPECT_TRUE(flat(model).equal(before));
  EXPECT_TRUE(results.contains("loss") && results.contains("acc"));
  model.train_batch(batch.data, batch.target);
  EXPECT_FALSE(flat(model).equal(before));
}

TEST(Model, GoesOnFromAFileAsIfNothingHadHappened) {
  TempDir folder;
  const auto momentum = [](auto parameters) {
    return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  };
  const auto fresh = [&] {
    Model model(seeded_net());
    model.prepare(momentum, torch::nn::CrossEntropyLoss());
    return model;
  };
  const FitOptions options{.batch_size = 10, .verbose = 0, .shuffle = false};
  Model unbroken = fresh();
  unbroken.fit(points(), options);
  unbroken.set_learning_rate(0.05);
  unbroken.save(folder.path() / "deep/one");
  unbroken.fit(points(), options);

  Model loaded = fresh();
  loaded.load(folder.path() / "deep/one");
  EXPECT_EQ(loaded.learning_rate(), 0.05);
  loaded.fit(points(), options);
  EXPECT_TRUE(flat(loaded).equal(flat(unbroken)));

  Model reset = fresh();
  reset.load(folder.path() / "deep/one", {.reset_optimizer = true});
  EXPECT_EQ(reset.learning_rate(), 0.1);
}

TEST(Model, SaysThatALoadBeforePrepareLeavesTheOptimizerOut) {
  TempDir folder;
  const auto sgd = [](auto parameters) { return torch::optim::SGD(parameters, 0.1); };
  const auto file = folder.path() / "one";
  Model saved(seeded_net());
  saved.prepare(sgd, torch::nn::CrossEntropyLoss()).fit(points(), {.batch_size = 10, .verbose = 0});
  saved.save(file);
  const auto warnings = [&](const LoadOptions& options) {
    const CaughtLog caught;
    Model model(seeded_net());
    model.load(file, options);
    model.prepare(sgd, torch::nn::CrossEntropyLoss());
    return caught.lines();
  };
  EXPECT_THAT(warnings({}),
              ElementsAre(AllOf(HasSubstr("one.optimizer.safetensors"), HasSubstr("load() after prepare()"))));
  EXPECT_THAT(warnings({.reset_optimizer = true}), ElementsAre());
  const CaughtLog caught;
  Model evaluated(seeded_net());
  evaluated.load(file);
  evaluated.prepare({.loss = torch::nn::CrossEntropyLoss()});
  EXPECT_THAT(caught.lines(), ElementsAre());
}

TEST(Model, SavesTheWeightsAlone) {
  TempDir folder;
  Model model = prepared(seeded_net());
  model.save(folder.path() / "net", {.training = false});
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "net.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "net.optimizer.safetensors"));
}

bundle::Description small_images() {
  return {.model_name = "", .input = {.channels = 3, .height = 2, .width = 2}, .labels = {"a", "b", "c"}};
}

torch::nn::Sequential image_net() {
  return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(12, 3));
}

TEST(Model, SavesForInference) {
  const TempDir folder;
  Model model(image_net());
  const CaughtLog caught;
  model.save(folder.path() / "net", {.training = false, .inference = small_images()});
  EXPECT_EQ(caught.count("inference.onnx is written without having been run, as Model::save has none"), 1U);
  const bundle::Description written = bundle::read(folder.path() / "net");
  EXPECT_EQ(written.output.class_num, 3);
  EXPECT_THAT(written.labels, ElementsAre("a", "b", "c"));
  EXPECT_THAT(written.model_name, HasSubstr("Sequential"));
  const torch::Tensor images = torch::randn({4, 3, 2, 2});
  torch::jit::Module loaded = torch::jit::load(folder.path() / "net" / bundle::kTorchFile);
  EXPECT_TRUE(torch::allclose(loaded.forward({images}).toTensor(), model.predict_batch(images).softmax(1), 1e-4, 1e-6));
}

TEST(Model, SavesForInferenceOnlyWhatIsFloatAndFinished) {
  const TempDir folder;
  Model model(image_net());
  EXPECT_THAT([&] { model.save(folder.path() / "net", {.inference = small_images()}); },
              ThrowsMessage<UsageError>(HasSubstr(".training = false")));
  model.prepare({.optimizer = sgd(0.1), .loss = torch::nn::CrossEntropyLoss(), .amp = {.level = AmpLevel::O2}});
  const SaveOptions options{.training = false, .inference = small_images()};
  EXPECT_THAT([&] { model.save(folder.path() / "net", options); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("BFloat16"), HasSubstr("prepare()"))));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  model.prepare(PrepareOptions{});
  model.save(folder.path() / "net", options);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "net" / bundle::kOnnxFile));
}

TEST(Model, LoadsWhatFits) {
  TempDir folder;
  Model(torch::nn::Linear(4, 3)).save(folder.path() / "three");
  Model other(torch::nn::Linear(4, 5));
  EXPECT_THAT([&] { other.load(folder.path() / "three"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("weight"), HasSubstr("three.safetensors"))));
  other.load(folder.path() / "three", {.skip_mismatch = true});
  EXPECT_THAT([&] { other.load(folder.path() / "none"); },
              ThrowsMessage<std::exception>(HasSubstr("none.safetensors")));
}

TEST(Model, ChecksWhatItIsGiven) {
  Net net = seeded_net();
  Model model(net);
  EXPECT_THAT([&] { model.fit(points()); }, ThrowsMessage<UsageError>(HasSubstr("no optimizer")));
  EXPECT_THAT([&] { model.learning_rate(); }, ThrowsMessage<UsageError>(HasSubstr("no optimizer")));
  EXPECT_THAT([&] { model.prepare(sgd(1)).fit(points()); }, ThrowsMessage<UsageError>(HasSubstr("no loss")));
  const auto foreign = std::make_shared<torch::optim::SGD>(Net()->parameters(), 0.1);
  EXPECT_THAT([&] { model.prepare(foreign); }, ThrowsMessage<UsageError>(HasSubstr("6 of the optimizer's 6")));
  EXPECT_THAT(
      [&] {
        model.prepare({.metrics = {metric::Accuracy(), metric::Accuracy()}});
      },
      ThrowsMessage<UsageError>(HasSubstr("'acc'")));
  EXPECT_THAT([&] { prepared(net).fit(points(), {.batch_size = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("batch_size is 0")));
  EXPECT_THAT([&] { prepared(net).fit(points(), {.batch_size = 100, .drop_last = true}); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("60 samples"), HasSubstr("drop_last"))));
  EXPECT_THAT([&] { prepared(net).fit({}); }, ThrowsMessage<UsageError>(HasSubstr("no dataset")));
}

TEST(Model, TakesAnOptimizerOfTheCaller) {
  Net net = seeded_net();
  const auto optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), 0.01);
  Model model(net);
  model.prepare({.optimizer = optimizer, .loss = torch::nn::CrossEntropyLoss()});
  model.fit(points(), {.batch_size = 20, .verbose = 0});
  EXPECT_EQ(optimizer->state().size(), net->parameters().size());
}

TEST(Model, SummarizesItsLayers) {
  const Summary summary = Model(seeded_net()).summary({2, 4});
  ASSERT_EQ(summary.layers.size(), 3u);
  EXPECT_EQ(summary.layers[0].type, "Linear");
  EXPECT_THAT(summary.layers[0].output_shape, ElementsAre(2, 8));
  EXPECT_EQ(summary.layers[1].name, "norm");
  EXPECT_EQ(summary.layers[1].params, 32);
  EXPECT_THAT(summary.layers[1].output_shape, ElementsAre(2, 8));
  EXPECT_THAT(summary.layers[2].output_shape, ElementsAre(2, 3));
  EXPECT_EQ(summary.trainable_params, 40 + 16 + 27);
  EXPECT_EQ(summary.total_params, 40 + 32 + 27);
  EXPECT_THAT(summary.text, AllOf(HasSubstr("norm (BatchNorm1d)"), HasSubstr("[2, 8]"), HasSubstr("Total params: 99")));
}

TEST(Model, SummarizesLayersWithoutBias) {
  const Model model(torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false)));
  EXPECT_THAT(model.summary({5, 4}).layers[0].output_shape, ElementsAre(5, 3));
  EXPECT_THAT(model.summary({5, 6, 4}).layers[0].output_shape, ElementsAre(5, 6, 3));
}

TEST(Model, SummarizesANetOfOneLayer) {
  const Summary summary = Model(torch::nn::Linear(1000, 2)).summary({5, 1000});
  ASSERT_EQ(summary.layers.size(), 1u);
  EXPECT_THAT(summary.layers[0].output_shape, ElementsAre(5, 2));
  EXPECT_THAT(summary.text, HasSubstr("Total params: 2,002"));
}

}  // namespace
}  // namespace trireme
