// Models with several inputs, labels and outputs.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/data/tensor_dataset.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/model.h"
#include "trireme/train/step.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using torch::Tensor;
using train::Tensors;

// Which of two points is larger, and how far they are apart.
struct PairNetImpl : torch::nn::Module {
  std::tuple<Tensor, Tensor> forward(const Tensor& left, const Tensor& right) {
    const Tensor hidden = torch::tanh(first(torch::cat({left, right}, 1)));
    return {kind(hidden), distance(hidden)};
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::Linear kind = register_module("kind", torch::nn::Linear(8, 2));
  torch::nn::Linear distance = register_module("distance", torch::nn::Linear(8, 1));
};
TORCH_MODULE(PairNet);

PairNet pair_net() {
  torch::manual_seed(7);
  return PairNet();
}

data::Batch rows(int64_t count) {
  torch::manual_seed(3);
  const Tensor left = torch::randn({count, 3}), right = torch::randn({count, 3});
  return {{"left", left},
          {"right", right},
          {"larger", (left.sum(1) > right.sum(1)).to(torch::kLong)},
          {"distance", (left - right).norm(2, 1, true)}};
}

data::TensorDataset pairs(int64_t count = 50) {
  return data::TensorDataset(rows(count));
}

Tensor pair_loss(const Tensors& outputs, const Tensors& labels) {
  return torch::cross_entropy_loss(outputs[0], labels[0]) + 0.5 * torch::mse_loss(outputs[1], labels[1]);
}

train::Metrics pair_metrics() {
  return {{metric::Accuracy(), {.output = 0, .label = 0}}};
}

const auto kMomentum = [](auto parameters) { return optim::Momentum(parameters, {.lr = 0.05}); };

Model pair_model(const PairNet& net, const TensorNames& options = {}) {
  Model model(net, options);
  model.prepare({.optimizer = kMomentum, .loss = pair_loss, .metrics = pair_metrics()});
  return model;
}

Tensor weights(const Model& model) {
  Tensors parts;
  for (const Tensor& parameter : model.parameters()) parts.push_back(parameter.detach().reshape({-1}));
  return torch::cat(parts);
}

const FitOptions kFit{.batch_size = 8, .epochs = 2, .verbose = 0};

TEST(Lists, AFitIsTheLoopWrittenByHand) {
  Model model = pair_model(pair_net());
  model.fit(pairs(), kFit);

  PairNet net = pair_net();
  optim::Momentum optimizer(net->parameters(), {.lr = 0.05});
  train::Step step(net, optimizer, {.loss = pair_loss});
  data::Loader loader(pairs(), {.batch_size = 8, .shuffle = true}, RankInfo{0, 1});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const data::Batch& batch : loader) step({batch["left"], batch["right"]}, {batch["larger"], batch["distance"]});
  EXPECT_EQ(step.outputs().size(), 2u);

  PairNet other = pair_net();
  optim::Momentum momentum(other->parameters(), {.lr = 0.05});
  train::Step by_function(other, momentum);
  data::Loader again(pairs(), {.batch_size = 8, .shuffle = true}, RankInfo{0, 1});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const data::Batch& batch : again)
      by_function([&] {
        const auto [kind, distance] = other->forward(batch["left"], batch["right"]);
        return pair_loss({kind, distance}, {batch["larger"], batch["distance"]});
      });
  EXPECT_TRUE(weights(model).equal(weights(Model(net))));
  EXPECT_TRUE(weights(model).equal(weights(Model(other))));
}

TEST(Lists, EvaluatesAndPredictsEachOutput) {
  Model model = pair_model(pair_net());
  const Results results = model.evaluate(pairs(), {.batch_size = 8, .verbose = 0});
  const Tensors outputs = model.predict_outputs(pairs(), {.batch_size = 8, .verbose = 0});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].sizes(), torch::IntArrayRef({50, 2}));
  EXPECT_EQ(outputs[1].sizes(), torch::IntArrayRef({50, 1}));
  const data::Batch all = rows(50);
  const Tensors whole = model.predict_batch({all["left"], all["right"]});
  EXPECT_TRUE(outputs[1].allclose(whole[1], 1e-5, 1e-6));
  EXPECT_NEAR(results.at("loss"), pair_loss(whole, {all["larger"], all["distance"]}).item<double>(), 1e-5);
  EXPECT_EQ(results.at("acc"), (whole[0].argmax(1) == all["larger"]).to(torch::kDouble).mean().item<double>());
}

TEST(Lists, MeasuresAnOutputThatIsNotTheFirst) {
  struct MeanError : Metric {
    std::vector<std::string> names() const override { return {"mae"}; }
    Tensor measure(const Tensor& output, const Tensor& label) const override {
      return torch::stack({(output - label).abs().sum().to(torch::kDouble),
                           torch::full({}, static_cast<double>(label.numel()), torch::kDouble)});
    }
    std::vector<double> result(const Tensor& sums) const override { return {ratio(sums, 0, 1)}; }
  };
  Model model(pair_net());
  model.prepare(
      {.optimizer = kMomentum,
       .loss = pair_loss,
       .metrics = {{MeanError(), {.output = 1, .label = 1}}, {metric::Accuracy(), {.output = 0, .label = 0}}}});
  const data::Batch all = rows(50);
  const Tensors whole = model.predict_batch({all["left"], all["right"]});
  const double error = (whole[1] - all["distance"]).abs().mean().item<double>();
  const Results results = model.evaluate(pairs(), {.batch_size = 8, .verbose = 0});
  EXPECT_NEAR(results.at("mae"), error, 1e-5);
  EXPECT_EQ(results.at("acc"), (whole[0].argmax(1) == all["larger"]).to(torch::kDouble).mean().item<double>());
  EXPECT_GT(model.fit(pairs(), kFit).at("mae"), 0);
}

TEST(Lists, LearnsOnBatchesOfTheCaller) {
  Model model = pair_model(pair_net());
  const data::Batch all = rows(50);
  const Tensors inputs = {all["left"], all["right"]}, labels = {all["larger"], all["distance"]};
  const double before = model.eval_batch(inputs, labels).at("loss");
  for (int i = 0; i < 30; ++i) model.train_batch(inputs, labels);
  EXPECT_LT(model.eval_batch(inputs, labels).at("loss"), before / 2);
}

TEST(Lists, NamesChooseTensorsInAnyOrder) {
  const data::Batch all = rows(50);
  const data::TensorDataset mixed(data::Batch({{"distance", all["distance"]},
                                               {"number", torch::arange(50)},
                                               {"right", all["right"]},
                                               {"larger", all["larger"]},
                                               {"left", all["left"]}}));
  Model named = pair_model(pair_net(), {.inputs = {"left", "right"}, .labels = {"larger", "distance"}});
  named.fit(mixed, kFit);
  Model plain = pair_model(pair_net());
  plain.fit(pairs(), kFit);
  EXPECT_TRUE(weights(named).equal(weights(plain)));
  Model wrong = pair_model(pair_net(), {.inputs = {"left", "write"}});
  EXPECT_THAT(message_of<UsageError>([&] { wrong.fit(pairs(), kFit); }), AllOf(HasSubstr("write"), HasSubstr("right")));
}

TEST(Lists, AFitResumesExactly) {
  const TempDir folder;
  FitOptions options = kFit;
  options.checkpoint_dir = folder.path() / "whole";
  Model whole = pair_model(pair_net());
  whole.fit(pairs(), options);
  options.checkpoint_dir = folder.path() / "parts";
  options.epochs = 1;
  Model half = pair_model(pair_net());
  half.fit(pairs(), options);
  options.epochs = 2;
  Model rest = pair_model(PairNet());
  rest.fit(pairs(), options);
  EXPECT_TRUE(weights(rest).equal(weights(whole)));
}

TEST(Lists, WrongCountsAreUsageErrors) {
  Model model = pair_model(pair_net());
  const data::TensorDataset one(data::Batch({{"left", torch::zeros({8, 3})}}));
  EXPECT_THAT(message_of<UsageError>([&] { model.fit(one, kFit); }),
              AllOf(HasSubstr("takes 2 inputs"), HasSubstr("1 tensors (left)")));
  EXPECT_THAT(message_of<UsageError>([&] { model.predict_outputs(one, {.verbose = 0}); }), HasSubstr("takes 2 inputs"));
  EXPECT_THAT(message_of<UsageError>([&] { model.predict(pairs(), {.verbose = 0}); }),
              AllOf(HasSubstr("2 outputs"), HasSubstr("predict_outputs()")));
  EXPECT_THAT(message_of<UsageError>([&] {
                model.predict_batch({torch::zeros({8, 3})});
              }),
              AllOf(HasSubstr("takes 2 inputs"), HasSubstr("got 1")));
  EXPECT_THAT(message_of<UsageError>([&] {
                Model(pair_net(), {.inputs = {"left", "right", "third"}});
              }),
              AllOf(HasSubstr("3 tensors (left, right, third)"), HasSubstr("takes 2")));
}

TEST(Lists, ALossOfOneLabelRefusesSeveral) {
  Model model(torch::nn::Linear(4, 3));
  model.prepare({.optimizer = kMomentum, .loss = torch::nn::CrossEntropyLoss(), .metrics = {metric::Accuracy()}});
  const data::TensorDataset three(
      data::Batch({{"x", torch::zeros({8, 4})}, {"y", torch::zeros({8}, torch::kLong)}, {"weight", torch::ones({8})}}));
  const auto refused = AllOf(HasSubstr("3 tensors (x, y, weight)"), HasSubstr("2 labels"), HasSubstr(".labels"));
  EXPECT_THAT(message_of<UsageError>([&] { model.fit(three, kFit); }), refused);
  EXPECT_THAT(message_of<UsageError>([&] { model.evaluate(three, {.verbose = 0}); }), refused);
  EXPECT_EQ(model.predict(three, {.verbose = 0}).size(0), 8);
  Model pair(pair_net());
  pair.prepare({.optimizer = kMomentum, .loss = torch::nn::CrossEntropyLoss()});
  const data::Batch all = rows(8);
  EXPECT_THAT(message_of<UsageError>([&] {
                pair.train_batch({all["left"], all["right"]}, {all["larger"], all["distance"]});
              }),
              AllOf(HasSubstr("2 outputs and 2 labels"), HasSubstr("lists")));
}

TEST(Lists, AMetricMustBeToldWhatItMeasures) {
  Model model(pair_net());
  model.prepare({.loss = pair_loss, .metrics = {metric::Accuracy()}});
  EXPECT_THAT(message_of<UsageError>([&] { model.evaluate(pairs(), {.verbose = 0}); }),
              AllOf(HasSubstr("metric 'acc'"), HasSubstr("2 outputs and 2 labels")));
  model.prepare({.loss = pair_loss, .metrics = {{metric::Accuracy(), {.output = 2, .label = 0}}}});
  EXPECT_THAT(message_of<UsageError>([&] { model.evaluate(pairs(), {.verbose = 0}); }),
              AllOf(HasSubstr(".output = 2"), HasSubstr("2 outputs")));
}

struct ListNetImpl : torch::nn::Module {
  Tensors forward(const Tensors& parts) { return {layer(torch::cat(parts, 1)), parts[0]}; }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 2));
};
TORCH_MODULE(ListNet);

TEST(Lists, ANetworkMayTakeAList) {
  Model model(ListNet(), {.inputs = {"left", "right"}});
  EXPECT_EQ(model.predict_outputs(pairs(), {.batch_size = 20, .verbose = 0})[1].sizes(), torch::IntArrayRef({50, 3}));
  EXPECT_THAT(message_of<UsageError>([&] { Model(ListNet()).predict(pairs(), {.verbose = 0}); }), HasSubstr(".inputs"));
}

struct MaskedNetImpl : torch::nn::Module {
  Tensor forward(const Tensor& x, const Tensor& mask = {}) { return layer(mask.defined() ? x * mask : x); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 2));
};
TORCH_MODULE(MaskedNet);

TEST(Lists, CountsTheInputsOfForward) {
  EXPECT_EQ(train::Network(pair_net()).inputs, (train::InputCount{2, 2}));
  EXPECT_EQ(train::Network(MaskedNet()).inputs, (train::InputCount{1, 2}));
  EXPECT_EQ(train::Network(torch::nn::Sequential(torch::nn::Linear(1, 1))).inputs, (train::InputCount{1, 1}));
  EXPECT_EQ(train::Network(torch::nn::LSTM(3, 4)).forward({torch::zeros({5, 2, 3})}).size(), 3u);
  EXPECT_TRUE(train::TakesTensors<ListNetImpl>);
  EXPECT_FALSE(train::TakesTensors<torch::nn::Module>);
}

TEST(Lists, SummarizesSeveralInputs) {
  const Summary summary = Model(pair_net()).summary({{5, 3}, {5, 3}});
  ASSERT_EQ(summary.layers.size(), 3u);
  EXPECT_EQ(summary.layers[1].output_shape, (std::vector<int64_t>{5, 2}));
}

}  // namespace
}  // namespace trireme
